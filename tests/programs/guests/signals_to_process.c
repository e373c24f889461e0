/* Queued signals for the process while threads that accept them begin and end, and block them again:
 * each arrives once, with its value, at whoever accepts it. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>

enum { SENT = 1000, AT_ONCE = 4, THREADS = 3 };
static atomic_long sum;
static atomic_int handled;
static sigset_t queued;

static void handler(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    atomic_fetch_add(&sum, info->si_value.sival_int);
    atomic_fetch_add(&handled, 1);
}

static void *sends(void *unused)
{
    for (int i = 1; i <= SENT; i++) {
        MUST(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}));
        while (i - atomic_load(&handled) > AT_ONCE)
            sched_yield();
    }
    return unused;
}

/* It ends with the signal open, so that one may be on its way to it. */
static void *accepts(void *blocks)
{
    MUST(pthread_sigmask(SIG_UNBLOCK, &queued, NULL));
    sched_yield();
    if (blocks)
        MUST(pthread_sigmask(SIG_BLOCK, &queued, NULL));
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_RESTART | SA_SIGINFO};
    MUST(sigaction(SIGRTMIN, &action, NULL));
    sigemptyset(&queued);
    sigaddset(&queued, SIGRTMIN);
    MUST(pthread_sigmask(SIG_BLOCK, &queued, NULL));
    pthread_t sender = start(sends, NULL), threads[THREADS];
    while (atomic_load(&handled) < SENT) {
        for (long i = 0; i < THREADS; i++)
            threads[i] = start(accepts, (void *)(i % 2));
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
    }
    join(sender);
    check("signals_to_process", sum == (long)SENT * (SENT + 1) / 2, "%ld, %d", (long)sum, (int)handled);
    return verdict();
}
