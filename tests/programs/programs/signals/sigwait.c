/* sigwait for a signal to the process, sigwaitinfo with a queued value to a thread, and the
 * timeout of sigtimedwait. */
#include "case.h"
#include <signal.h>

static sigset_t set;

static void *waiter(void *unused)
{
    (void)unused;
    int signal = 0;
    sigwait(&set, &signal);
    return (void *)(long)signal;
}

static void *taker(void *unused)
{
    (void)unused;
    siginfo_t info;
    long sum = 0;
    for (int i = 0; i < 10; i++)
        if (UNSTOPPED(sigwaitinfo(&set, &info)) == SIGRTMIN && info.si_code == SI_QUEUE)
            sum += info.si_value.sival_int;
    return (void *)sum;
}

int main(void)
{
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t thread = start(waiter, NULL);
    settle();
    kill(getpid(), SIGUSR1);
    long signal = (long)join(thread);
    check("sigwait_process", signal == SIGUSR1, "got %ld", signal);

    thread = start(taker, NULL);
    for (int i = 1; i <= 10; i++)
        MUST(pthread_sigqueue(thread, SIGRTMIN, (union sigval){.sival_int = i}));
    long sum = (long)join(thread);
    check("sigwaitinfo_thread", sum == 55, "sum %ld", sum);

    struct timespec brief = {0, 20 * 1000 * 1000};
    long long before = now(CLOCK_MONOTONIC);
    errno = 0;
    int result = (int)UNSTOPPED(sigtimedwait(&set, NULL, &brief));
    int error = errno;
    long long waited = now(CLOCK_MONOTONIC) - before;
    check("sigtimedwait", result == -1 && error == EAGAIN && waited >= 20000000,
          "result %d, errno %d, %lld ns", result, error, waited);
    return verdict();
}
