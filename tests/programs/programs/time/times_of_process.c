/* What the kernel counts and limits for a process it counts and limits for all its threads: RLIMIT_CPU signals, then kills;
 * getrusage(2), times(2), clock(3) and the parent's wait4(2) say what the threads have used. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/wait.h>

#define USES 150000000LL
static atomic_int signals;

static void comes(int signal)
{
    (void)signal;
    atomic_fetch_add(&signals, 1);
}

static void *computes(void *unused)
{
    while (now(CLOCK_THREAD_CPUTIME_ID) < USES) {
    }
    return unused;
}

static void *computes_on(void *unused)
{
    for (;;) {
    }
    return unused;
}

static long long used(const struct rusage *usage)
{
    return (usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000000LL +
           (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000LL;
}

/* What two threads have used, with some room for the grain of each clock. */
static int is_enough(long long time) { return time > 2 * USES - USES / 5; }

static void limited(void)
{
    MUST(setrlimit(RLIMIT_CPU, &(struct rlimit){1, 2}));
    signal(SIGXCPU, comes);
    start(computes_on, NULL);
    while (atomic_load(&signals) == 0)
        usleep(1000);
    check("signal_at_the_limit", 1, "%d", 0);
    for (;;)
        pause();
}

static void counted(void)
{
    struct rusage usage;
    struct tms ticks;
    pthread_t one = start(computes, NULL), other = start(computes, NULL);
    join(one);
    join(other);
    MUST(getrusage(RUSAGE_SELF, &usage));
    check("getrusage", is_enough(used(&usage)), "%lld", used(&usage));
    times(&ticks);
    long long time = (ticks.tms_utime + ticks.tms_stime) * (1000000000LL / sysconf(_SC_CLK_TCK));
    check("times", is_enough(time), "%lld", time);
    time = clock() * (1000000000LL / CLOCKS_PER_SEC);
    check("clock", is_enough(time), "%lld", time);
    time = now(CLOCK_PROCESS_CPUTIME_ID);
    check("clock_of_process", is_enough(time), "%lld", time);
    MUST(getrusage(RUSAGE_THREAD, &usage));
    check("first_thread", used(&usage) < USES, "%lld", used(&usage));
    _exit(verdict());
}

int main(void)
{
    int status;
    struct rusage usage;
    pid_t child = fork();
    if (child == 0)
        limited();
    MUST(wait4(child, &status, 0, &usage) != child);
    check("killed_beyond_the_limit", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%#x", status);
    check("usage_of_killed", used(&usage) > 1000000000LL, "%lld", used(&usage));
    child = fork();
    if (child == 0)
        counted();
    MUST(wait4(child, &status, 0, &usage) != child);
    check("usage_of_child", status == 0 && is_enough(used(&usage)), "%#x, %lld", status, used(&usage));
    MUST(getrusage(RUSAGE_CHILDREN, &usage));
    check("usage_of_children", used(&usage) > 1000000000LL + USES, "%lld", used(&usage));
    return verdict();
}
