/* A thread that waits alone for a semaphore or a condition is woken by whoever there is: another thread of Upcall, one of pthreads
 * that has a kernel thread of its own (unshare(2)), and a timer's thread, which is libc's. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "check.h"

enum { ROUNDS = 300, TIMERS = 20 };

static upcall_semaphore_t gates[2];
static upcall_mutex_t mutex = UPCALL_MUTEX_INITIALIZER;
static upcall_cond_t changed = UPCALL_COND_INITIALIZER;
static int turns;

/* `own`: 0 or 1, whose turn it is. */
static void play(int own)
{
    for (int i = 0; i < ROUNDS; i++) {
        OK(upcall_semaphore_post(&gates[1 - own]));
        OK(upcall_semaphore_wait(&gates[own]));
    }
    OK(upcall_mutex_lock(&mutex));
    for (int i = 0; i < ROUNDS; i++) {
        while (turns % 2 != own)
            OK(upcall_cond_wait(&changed, &mutex));
        turns++;
        OK(upcall_cond_signal(&changed));
    }
    OK(upcall_mutex_unlock(&mutex));
}

static void *plays(void *unused)
{
    play(1);
    return unused;
}

static void *plays_apart(void *unused)
{
    CHECK(unshare(CLONE_FS) == 0);
    return plays(unused);
}

static void posts(union sigval gate) { OK(upcall_semaphore_post(gate.sival_ptr)); }

static void *waits(void *unused)
{
    for (int i = 0; i < TIMERS; i++)
        OK(upcall_semaphore_wait(&gates[0]));
    return unused;
}

int main(void)
{
    upcall_thread_t ours;
    pthread_t plain;
    timer_t timer;
    struct itimerspec soon = {{0, 200000}, {0, 200000}};
    struct sigevent event;
    start_as_told();
    OK(upcall_semaphore_init(&gates[0], 0));
    OK(upcall_semaphore_init(&gates[1], 0));

    OK(upcall_thread_create(&ours, NULL, plays, NULL));
    play(0);
    OK(upcall_thread_join(ours, NULL));

    OK(pthread_create(&plain, NULL, plays_apart, NULL));
    play(0);
    OK(pthread_join(plain, NULL));
    CHECK(turns == 4 * ROUNDS);

    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD;
    event.sigev_notify_function = posts;
    event.sigev_value.sival_ptr = &gates[0];
    OK(upcall_thread_create(&ours, NULL, waits, NULL));
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
    OK(upcall_thread_join(ours, NULL));
    /* Nothing is freed: the timer's last threads may still post. */
    puts("ok");
    return 0;
}
