/* Each thread has its own signal mask, across yields, sleeps and system calls. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>

#define THREADS 8
static atomic_int wrong;

static void *body(void *number)
{
    long self = (long)number;
    sigset_t set;
    sigemptyset(&set);
    if (self & 1)
        sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGRTMIN + self);
    pthread_sigmask(SIG_SETMASK, &set, NULL);
    for (int turn = 0; turn < 300; turn++) {
        if (turn % 20 == 0)
            usleep(1000);
        else
            sched_yield();
        sigset_t seen;
        sigemptyset(&seen);
        pthread_sigmask(SIG_BLOCK, NULL, &seen);
        for (int other = 0; other < THREADS; other++)
            if (sigismember(&seen, SIGRTMIN + other) != (other == self))
                atomic_fetch_add(&wrong, 1);
        if (sigismember(&seen, SIGUSR2) != (self & 1) || sigismember(&seen, SIGTERM))
            atomic_fetch_add(&wrong, 1);
    }
    return NULL;
}

/* A new thread inherits its creator's mask. */
static void *heir(void *expected)
{
    sigset_t seen;
    pthread_sigmask(SIG_BLOCK, NULL, &seen);
    return (void *)(long)(sigismember(&seen, (int)(long)expected) == 1);
}

int main(void)
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(body, (void *)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("signal_masks", wrong == 0, "%d wrong bits", wrong);

    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    long inherited = (long)join(start(heir, (void *)(long)SIGHUP));
    check("signal_mask_inherited", inherited, "SIGHUP is not blocked in the new thread");
    return verdict();
}
