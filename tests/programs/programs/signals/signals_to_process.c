/* Queued signals for the process while threads that accept them begin and end, and block them again:
 * each arrives once, with its value, at a thread that accepts it. */
#include "queued_signals.h"

enum { SENT = 1000, AT_ONCE = 4, THREADS = 3 };
static sigset_t queued;

static void *sends(void *unused)
{
    for (int i = 1; i <= SENT; i++) {
        MUST(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}));
        await_handled(i, AT_ONCE);
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
    handle_queued();
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
    check("signals_to_process", sum == (long)SENT * (SENT + 1) / 2, "%ld, %ld", (long)sum, (long)handled);
    return verdict();
}
