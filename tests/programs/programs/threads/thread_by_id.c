/* Calls about one thread of the process that another thread names by its id: counters, and I/O priorities. They are
 * about that thread and no other. Where the kernel gives no counters there is nothing to compare. */
#include "crowd.h"
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { WHO_PROCESS = 1, BEST_EFFORT_6 = 2 << 13 | 6, BEST_EFFORT_5 = 2 << 13 | 5 };

static pthread_barrier_t both;
static atomic_int id, stops;
static long long used;

/* Says its id, and computes or waits until it is told to stop. */
static void *lives(void *waits)
{
    if (waits == (void *)2) /* It has a kernel thread of its own already. */
        MUST(prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0));
    atomic_store(&id, gettid());
    pthread_barrier_wait(&both);
    long long before = now(CLOCK_THREAD_CPUTIME_ID);
    if (waits == NULL)
        while (!atomic_load(&stops)) {
        }
    used = now(CLOCK_THREAD_CPUTIME_ID) - before;
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    return NULL;
}

/* The time that the host of a virtual machine has taken from all processors, in nanoseconds. Counters count it, and the
 * clocks of threads do not (proc_stat(5), "steal"). */
static long long stolen(void)
{
    long long ticks = 0;
    FILE *times = fopen("/proc/stat", "r");
    if (times != NULL) {
        if (fscanf(times, "cpu %*u %*u %*u %*u %*u %*u %*u %lld", &ticks) != 1)
            ticks = 0;
        fclose(times);
    }
    return ticks * (1000000000 / sysconf(_SC_CLK_TCK));
}

static pthread_t begin(void *waits)
{
    atomic_store(&stops, 0);
    pthread_t thread = start(lives, waits);
    pthread_barrier_wait(&both);
    return thread;
}

static void end(pthread_t thread)
{
    pthread_barrier_wait(&both);
    join(thread);
}

static void *counts(void *unused)
{
    (void)unused;
    struct perf_event_attr wanted = {.type = PERF_TYPE_SOFTWARE, .size = sizeof wanted,
                                     .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1, .exclude_hv = 1};
    long long stolen_before = stolen();
    pthread_t thread = begin(NULL);
    int counter = (int)syscall(SYS_perf_event_open, &wanted, atomic_load(&id), -1, -1, 0L);
    long known = errno == EACCES || errno == EPERM || errno == ENOSYS || errno == ENOENT;
    /* Others compute as much. */
    long long own = now(CLOCK_THREAD_CPUTIME_ID);
    while (now(CLOCK_THREAD_CPUTIME_ID) - own < 50000000) {
    }
    long long counted = 0;
    atomic_store(&stops, 1);
    pthread_barrier_wait(&both);
    if (counter >= 0) {
        MUST(read(counter, &counted, sizeof counted) != sizeof counted);
        /* The ticks of the host's time are coarse. */
        long long lost = stolen() - stolen_before + 20000000;
        check("a_counter_of_another", counted > 0 && counted < used + used / 2 + lost,
              "counted %lld, used %lld, lost at most %lld", counted, used, lost);
        close(counter);
    } else {
        check("a_counter_of_another", known, "errno %d", errno);
    }
    end(thread);
    return NULL;
}

static void io_priority(void *how, const char *name)
{
    pthread_t thread = begin(how);
    long before = syscall(SYS_ioprio_get, WHO_PROCESS, 0);
    long answer = syscall(SYS_ioprio_set, WHO_PROCESS, atomic_load(&id), BEST_EFFORT_6);
    long its = syscall(SYS_ioprio_get, WHO_PROCESS, atomic_load(&id));
    long again = syscall(SYS_ioprio_set, WHO_PROCESS, atomic_load(&id), BEST_EFFORT_5);
    long then = syscall(SYS_ioprio_get, WHO_PROCESS, atomic_load(&id));
    long after = syscall(SYS_ioprio_get, WHO_PROCESS, 0), first = syscall(SYS_ioprio_get, WHO_PROCESS, getpid());
    check(name, answer == 0 && its == BEST_EFFORT_6 && again == 0 && then == BEST_EFFORT_5 && after == before && first == before,
          "%ld %lx, %ld %lx, own %lx before, %lx after, first %lx", answer, its, again, then, before, after, first);
    pthread_barrier_wait(&both);
    end(thread);
}

int main(void)
{
    MUST(pthread_barrier_init(&both, NULL, 2));
    begin_crowd();
    join(start(counts, NULL));
    counts(NULL);
    io_priority((void *)1, "the_io_priority_of_another");
    io_priority((void *)2, "the_io_priority_of_a_bound_one");
    /* By a thread that is bound. */
    MUST(prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0));
    counts(NULL);
    io_priority((void *)1, "the_io_priority_of_another_for_a_bound_one");
    io_priority((void *)2, "the_io_priority_of_a_bound_one_for_a_bound_one");
    end_crowd();
    return verdict();
}
