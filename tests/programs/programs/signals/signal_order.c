/* Signals of one number that nobody accepts any more are waited for in the order in which they were sent. */
#include "case.h"

#define ROUNDS 200
#define SIGNALS 6

static void handler(int signal) { (void)signal; }

static void *sleeper(void *unused)
{
    pause();
    return unused;
}

static void *body(void *unused)
{
    int wrong = 0, signal = SIGRTMIN + 4;
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, signal);
    for (int round = 0; round < ROUNDS; round++) {
        mask_signal(SIG_UNBLOCK, signal);
        mask_signal(SIG_BLOCK, signal);
        for (int i = 0; i < SIGNALS; i++) {
            union sigval value = {.sival_int = i};
            MUST(sigqueue(getpid(), signal, value));
        }
        for (int i = 0; i < SIGNALS; i++) {
            sigwaitinfo(&set, &info);
            wrong += info.si_value.sival_int != i;
        }
    }
    check("signal_order", wrong == 0, "%d of %d", wrong, ROUNDS * SIGNALS);
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigset_t all;
    sigfillset(&all);
    MUST(sigaction(SIGRTMIN + 4, &action, NULL));
    MUST(pthread_sigmask(SIG_SETMASK, &all, NULL));
    start(sleeper, NULL);
    body(NULL);
    join(start(body, NULL));
    return verdict();
}
