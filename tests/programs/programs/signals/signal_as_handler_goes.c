/* A signal that was sent before the program takes its handler away meets the handler, and does not end the process: here that of a
 * timer which is stopped first, beside processes that compute, so that whatever else takes the signal waits for a processor. The
 * handler may fork then. The handler of every signal can be taken away. */
#include "case.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>

#define ROUNDS 1500
#define BUSY 4
#define FORKS 20

static volatile sig_atomic_t handled, stopped, forks, is_child;

static void handler(int signal)
{
    int status = 1;
    (void)signal;
    handled++;
    /* Natively it is never here when the timer is stopped. */
    if (!stopped || forks == FORKS)
        return;
    forks++;
    pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        return;
    }
    MUST(waitpid(child, &status, 0) != child);
    MUST(status);
}

static void *sleeper(void *unused)
{
    pause();
    return unused;
}

static void *nothing(void *unused) { return unused; }

/* Of those that libc does not keep for itself. */
static void take_each_away(void)
{
    int taken = 0, refused = 0;
    for (int number = 1; number < NSIG; number++) {
        if (number == SIGKILL || number == SIGSTOP || signal(number, handler) == SIG_ERR)
            continue;
        taken++;
        refused += signal(number, SIG_DFL) != handler;
    }
    check("taken_away", taken > 50 && refused == 0, "%d taken, %d refused", taken, refused);
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
        long long for_ns = (round % 4 < 2 ? 290000 : 600000) + 500 * (round % 40);
        long long begin = now(CLOCK_MONOTONIC);
        stopped = 0;
        signal(SIGALRM, handler);
        MUST(setitimer(ITIMER_REAL, &on, NULL));
        if (round % 2)
            poll(NULL, 0, 1);
        while (now(CLOCK_MONOTONIC) - begin < for_ns)
            ;
        MUST(setitimer(ITIMER_REAL, &off, NULL));
        stopped = 1;
        signal(SIGALRM, SIG_DFL);
        if (is_child) {
            join(start(nothing, NULL));
            _exit(0);
        }
    }
    take_each_away();
    check("signal_as_handler_goes", handled > 0, "no signal came");
    for (int i = 0; i < BUSY; i++) {
        MUST(kill(busy[i], SIGKILL));
        MUST(waitpid(busy[i], NULL, 0) != busy[i]);
    }
    return verdict();
}
