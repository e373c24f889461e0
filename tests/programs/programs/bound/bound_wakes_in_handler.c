/* A thread with a nice value of its own wakes others all the time; so does its handler, which meets it in the middle of that. */
#include "case.h"
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { NR_SIGNALS = 1500, NR_WAITERS = 2 };

static _Atomic int word, handled, is_ready, done;

static void wake(void)
{
    word++;
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void handler(int unused)
{
    (void)unused;
    handled++;
    wake();
}

static void *wakes(void *unused)
{
    MUST(setpriority(PRIO_PROCESS, gettid(), 1));
    is_ready = 1;
    while (!done)
        wake();
    return unused;
}

static void *waits(void *unused)
{
    for (int seen = word; !done; seen = word)
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    return unused;
}

int main(void)
{
    pthread_t waker, waiters[NR_WAITERS];
    signal(SIGUSR1, handler);
    waker = start(wakes, NULL);
    while (!is_ready)
        sched_yield();
    for (int i = 0; i < NR_WAITERS; i++)
        waiters[i] = start(waits, NULL);
    for (int i = 0; i < NR_SIGNALS; i++) {
        pthread_kill(waker, SIGUSR1);
        while (handled == i)
            sched_yield();
    }
    done = 1;
    join(waker);
    word++;
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, NR_WAITERS, NULL, NULL, 0);
    for (int i = 0; i < NR_WAITERS; i++)
        join(waiters[i]);
    check("each_signal_was_handled", handled == NR_SIGNALS, "%d", handled);
    return verdict();
}
