/* Signals that a program sent itself, and blocks, before its first thread was created: those for the
 * first thread stay its own, with what they carry; those for the process are everybody's. */
#include "case.h"
#include <signal.h>

static sigset_t seen;

static void *body(void *unused)
{
    (void)unused;
    MUST(sigpending(&seen));
    return NULL;
}

int main(void)
{
    sigset_t set;
    int queued = SIGRTMIN + 1;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, queued);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    MUST(raise(SIGUSR1));
    MUST(kill(getpid(), SIGUSR2));
    for (int i = 1; i <= 3; i++)
        MUST(pthread_sigqueue(pthread_self(), queued, (union sigval){.sival_int = i}));
    MUST(sigqueue(getpid(), queued, (union sigval){.sival_int = 4}));
    join(start(body, NULL));
    check("before_threads_own", !sigismember(&seen, SIGUSR1), "another thread finds SIGUSR1 pending");
    check("before_threads_process", sigismember(&seen, SIGUSR2) && sigismember(&seen, queued),
          "another thread does not find what is for the process");
    MUST(sigpending(&seen));
    check("before_threads_first", sigismember(&seen, SIGUSR1) && sigismember(&seen, SIGUSR2),
          "the first thread does not find both");
    int values[4];
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, queued);
    for (int i = 0; i < 4; i++) {
        siginfo_t information;
        values[i] = sigwaitinfo(&one, &information) == queued ? information.si_value.sival_int : -1;
    }
    check("before_threads_order",
          values[0] == 1 && values[1] == 2 && values[2] == 3 && values[3] == 4, "%d %d %d %d",
          values[0], values[1], values[2], values[3]);
    return verdict();
}
