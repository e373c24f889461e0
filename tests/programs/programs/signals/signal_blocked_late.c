/* Threads have come and gone when the first one blocks a signal whose default action would end
 * the process: from then on it waits for sigwait, whichever thread sleeps with which mask. */
#include "case.h"
#include <signal.h>

static void *nothing(void *unused) { return unused; }

static void *sender(void *unused)
{
    kill(getpid(), SIGUSR2);
    return unused;
}

int main(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    int rounds = 0;
    for (int round = 0; round < 20; round++) {
        pthread_t threads[8];
        MUST(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
        for (int i = 0; i < 8; i++)
            threads[i] = start(nothing, NULL);
        for (int i = 0; i < 8; i++)
            join(threads[i]);
        settle();
        MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
        pthread_t thread = start(sender, NULL);
        settle();
        int signal = 0;
        MUST(sigwait(&set, &signal));
        rounds += signal == SIGUSR2;
        join(thread);
    }
    check("waits_for_sigwait", rounds == 20, "%d of 20", rounds);
    return verdict();
}
