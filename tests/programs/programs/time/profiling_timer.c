/* ITIMER_PROF and ITIMER_VIRTUAL count the process's computing, whichever thread computes. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

static atomic_int ticks;

static void handler(int signal)
{
    (void)signal;
    atomic_fetch_add(&ticks, 1);
}

static void *compute(void *unused)
{
    while (atomic_load(&ticks) < 20) {
    }
    return unused;
}

static void run(const char *name, int which, int signal)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval timer = {{0, 4000}, {0, 4000}}, none = {0};
    MUST(sigaction(signal, &action, NULL));
    atomic_store(&ticks, 0);
    MUST(setitimer(which, &timer, NULL));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = start(compute, NULL);
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    MUST(setitimer(which, &none, NULL));
    check(name, ticks >= 20, "%d ticks", ticks);
}

int main(void)
{
    run("itimer_prof", ITIMER_PROF, SIGPROF);
    run("itimer_virtual", ITIMER_VIRTUAL, SIGVTALRM);
    return verdict();
}
