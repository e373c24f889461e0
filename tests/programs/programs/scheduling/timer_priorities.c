/* A signal of a process timer reaches a program whose most urgent thread gives way again and again, but only to its
 * equals: that thread takes it. Under a policy in which threads have ranks. */
#include "case.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

static atomic_int come;
static void on_signal(int signal) { (void)signal; atomic_store(&come, 1); }

static void *yields(void *unused)
{
    (void)unused;
    long long end = now(CLOCK_MONOTONIC) + 5000000000LL;
    while (!atomic_load(&come) && now(CLOCK_MONOTONIC) < end)
        sched_yield();
    return (void *)(long)!atomic_load(&come);
}

static void one(const char *name, int timer, int signal)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct itimerval soon = {{0, 0}, {0, 50000}};
    pthread_attr_t attributes;
    struct sched_param parameter = {5};
    pthread_t thread;
    atomic_store(&come, 0);
    sigaction(signal, &action, NULL);
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
    pthread_attr_setschedparam(&attributes, &parameter);
    MUST(setitimer(timer, &soon, NULL));
    MUST(pthread_create(&thread, &attributes, yields, NULL));
    long late = (long)join(thread);
    check(name, !late, "no signal within 5 s");
}

int main(void)
{
    one("real", ITIMER_REAL, SIGALRM);
    one("virtual", ITIMER_VIRTUAL, SIGVTALRM);
    one("profiling", ITIMER_PROF, SIGPROF);
    return verdict();
}
