/* The library of constructor_threads.c: its constructor makes a thread for each kind of wait. */
#include "constructor_threads.h"
#include <signal.h>
#include <sys/socket.h>

struct shared shared = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                        .held = PTHREAD_MUTEX_INITIALIZER,
                        .there = PTHREAD_COND_INITIALIZER,
                        .back = PTHREAD_COND_INITIALIZER};

static void *waits_condition(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&shared.mutex);
    while (shared.rounds_there == 0) {
        pthread_cond_wait(&shared.there, &shared.mutex);
    }
    /* And the other way: main waits for this one. */
    shared.rounds_back = 1;
    pthread_cond_signal(&shared.back);
    pthread_mutex_unlock(&shared.mutex);
    return (void *)1;
}

static void *waits_mutex(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&shared.held);
    pthread_mutex_unlock(&shared.held);
    return (void *)2;
}

static void *waits_semaphore(void *unused)
{
    (void)unused;
    while (sem_wait(&shared.semaphore) != 0) {
    }
    return (void *)3;
}

static void *waits_pipe(void *unused)
{
    (void)unused;
    char byte = 0;
    while (read(shared.pipe[0], &byte, 1) != 1) {
    }
    return (void *)(long)byte;
}

static void *waits_signal(void *unused)
{
    (void)unused;
    sigset_t set;
    int signal = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sem_post(&shared.blocks);
    sigwait(&set, &signal);
    return (void *)(long)signal;
}

static void *sleeps(void *unused)
{
    (void)unused;
    settle();
    settle();
    return (void *)6;
}

static void *computes(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&shared.stop, __ATOMIC_ACQUIRE)) {
    }
    return (void *)7;
}

static void *pauses(void *unused)
{
    (void)unused;
    for (;;) {
        pause();
    }
    return NULL;
}

__attribute__((constructor)) static void up(void)
{
    static void *(*const routines[THREADS])(void *) = {
        waits_condition, waits_mutex, waits_semaphore, waits_pipe,
        waits_signal,    sleeps,      computes,        pauses,
    };
    MUST(sem_init(&shared.semaphore, 0, 0));
    MUST(sem_init(&shared.blocks, 0, 0));
    MUST(pipe(shared.pipe));
    /* Main, which runs this constructor, lets it go. */
    MUST(pthread_mutex_lock(&shared.held));
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_create(&shared.threads[i], NULL, routines[i], NULL));
    }
    settle();
}
