/* Queued signals with a value, for a thread that mostly blocks them and one that waits for them, while the
 * process's limit of queued signals (RLIMIT_SIGPENDING) falls to none and rises again: what could be
 * queued arrives, each once and with its value. */
#include "queued_signals.h"
#include <poll.h>
#include <sys/resource.h>

enum { SENT = 2000, AT_ONCE = 8 };
static atomic_int over;
static sigset_t queued;

/* Now and then, so that the other one gets some as well. */
static void *waits(void *unused)
{
    siginfo_t info;
    while (!atomic_load(&over)) {
        if (sigtimedwait(&queued, &info, &(struct timespec){0, 200 * 1000}) > 0)
            handler(SIGRTMIN, &info, NULL);
        else
            MUST(errno != EAGAIN && errno != EINTR);
        MUST(nanosleep(&(struct timespec){0, 200 * 1000}, NULL));
    }
    return unused;
}

static void *lowers(void *unused)
{
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_SIGPENDING, &limit));
    rlim_t most = limit.rlim_cur;
    while (!atomic_load(&over)) {
        limit.rlim_cur = 0;
        MUST(setrlimit(RLIMIT_SIGPENDING, &limit));
        for (int i = 0; i < 20; i++)
            sched_yield();
        limit.rlim_cur = most;
        MUST(setrlimit(RLIMIT_SIGPENDING, &limit));
        sched_yield();
    }
    return unused;
}

static void *sends(void *unused)
{
    for (int i = 1; i <= SENT; i++) {
        while (sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i}) != 0) {
            MUST(errno != EAGAIN);
            sched_yield();
        }
        await_handled(i, AT_ONCE);
    }
    return unused;
}

int main(void)
{
    handle_queued();
    sigset_t before;
    sigemptyset(&queued);
    sigaddset(&queued, SIGRTMIN);
    MUST(pthread_sigmask(SIG_BLOCK, &queued, &before));
    pthread_t threads[3] = {start(lowers, NULL), start(sends, NULL), start(waits, NULL)};
    while (atomic_load(&handled) < SENT) {
        MUST(pthread_sigmask(SIG_UNBLOCK, &queued, NULL));
        sched_yield();
        MUST(pthread_sigmask(SIG_BLOCK, &queued, NULL));
        sched_yield();
        MUST(ppoll(NULL, 0, &(struct timespec){0}, &before) != 0 && errno != EINTR);
    }
    atomic_store(&over, 1);
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    check("signals_kept", sum == (long)SENT * (SENT + 1) / 2, "%ld, %ld", (long)sum, (long)handled);
    return verdict();
}
