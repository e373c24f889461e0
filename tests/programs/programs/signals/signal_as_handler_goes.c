/* A signal that was sent before the program takes its handler away meets the handler, and does not end the process: here that of a
 * timer which is stopped first, beside processes that compute, so that whatever else takes the signal waits for a processor. */
#include "case.h"

#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>

#define ROUNDS 1500
#define BUSY 4

static volatile sig_atomic_t handled;

static void count(int signal)
{
    (void)signal;
    handled++;
}

static void *sleeper(void *unused)
{
    pause();
    return unused;
}

int main(void)
{
    struct itimerval on = {{0, 300}, {0, 300}}, off = {{0, 0}, {0, 0}};
    pid_t busy[BUSY];
    sigset_t all, before;
    for (int i = 0; i < BUSY; i++) {
        busy[i] = fork();
        if (busy[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                ;
        }
    }
    sigfillset(&all);
    MUST(pthread_sigmask(SIG_SETMASK, &all, &before));
    start(sleeper, NULL);
    MUST(pthread_sigmask(SIG_SETMASK, &before, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        /* Half of the time the signal comes at about the moment in which the timer is stopped. */
        long long for_ns = (round % 2 ? 290000 : 600000) + 500 * (round % 40);
        long long begin = now(CLOCK_MONOTONIC);
        signal(SIGALRM, count);
        MUST(setitimer(ITIMER_REAL, &on, NULL));
        while (now(CLOCK_MONOTONIC) - begin < for_ns)
            ;
        MUST(setitimer(ITIMER_REAL, &off, NULL));
        signal(SIGALRM, SIG_DFL);
    }
    check("signal_as_handler_goes", handled > 0, "no signal came");
    for (int i = 0; i < BUSY; i++) {
        MUST(kill(busy[i], SIGKILL));
        MUST(waitpid(busy[i], NULL, 0) != busy[i]);
    }
    return verdict();
}
