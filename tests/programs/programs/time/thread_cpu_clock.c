/* CPU clocks: a sleeping thread's stands nearly still, a computing one's moves, and the process's
 * holds both. Those of a thread that keeps something in the kernel for itself go on. */
#include "case.h"
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#define BEFORE 50000000
static atomic_int stop, running, keeps_on;

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

static long long usage_of_thread(void)
{
    struct rusage usage;
    MUST(getrusage(RUSAGE_THREAD, &usage));
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000000LL +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000LL;
}

static void *keeps(void *unused)
{
    while (now(CLOCK_THREAD_CPUTIME_ID) < BEFORE) {
    }
    long long before = usage_of_thread();
    MUST(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0));
    usleep(1000);
    long long after = usage_of_thread(), clock = now(CLOCK_THREAD_CPUTIME_ID);
    check("usage_goes_on", before > 0 && after >= before && clock >= BEFORE, "%lld, then %lld, %lld", before, after,
          clock);
    atomic_store(&keeps_on, 1);
    while (atomic_load(&keeps_on)) {
    }
    return unused;
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
    busy = start(keeps, NULL);
    while (!atomic_load(&keeps_on))
        usleep(1000);
    MUST(pthread_getcpuclockid(busy, &clock));
    first = now(clock);
    while (now(clock) - first < BEFORE)
        usleep(5000);
    check("cpu_clock_goes_on", first >= BEFORE, "%lld", first);
    atomic_store(&keeps_on, 0);
    join(busy);
    return verdict();
}
