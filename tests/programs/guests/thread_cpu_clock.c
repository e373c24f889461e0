/* CPU clocks: a sleeping thread's stands nearly still, a computing one's moves, and the process's
 * holds both. */
#include "case.h"
#include <stdatomic.h>
#include <sys/resource.h>

static atomic_int stop, running;

static void *computes(void *unused)
{
    atomic_fetch_add(&running, 1);
    while (!atomic_load(&stop)) {
    }
    (void)unused;
    return (void *)now(CLOCK_THREAD_CPUTIME_ID);
}

static void *sleeps(void *unused)
{
    atomic_fetch_add(&running, 1);
    while (!atomic_load(&stop))
        usleep(5000);
    (void)unused;
    return (void *)now(CLOCK_THREAD_CPUTIME_ID);
}

int main(void)
{
    pthread_t busy = start(computes, NULL), idle = start(sleeps, NULL);
    clockid_t clock;
    while (atomic_load(&running) < 2)
        sched_yield();
    MUST(pthread_getcpuclockid(busy, &clock));
    long long first = now(clock);
    while (now(clock) - first < 50000000)
        usleep(5000);
    atomic_store(&stop, 1);
    long long used = (long long)join(busy), rested = (long long)join(idle);
    long long process = now(CLOCK_PROCESS_CPUTIME_ID);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    check("cpu_clock_of_thread", used >= 50000000 && rested < used, "busy %lld ns, idle %lld ns",
          used, rested);
    check("cpu_clock_of_process", process >= used && usage.ru_utime.tv_sec * 1000000 +
          usage.ru_utime.tv_usec > 0, "process %lld ns, thread %lld ns", process, used);
    return verdict();
}
