/* On one processor a thread that another one wakes, which goes on to compute, runs at once and not when that one's time slice
 * is over. It goes on so, whatever happened at the end of some slice. Measured by the processor time that the waking thread
 * uses until it sees that the other one has run. */
#include "case.h"
#include <sched.h>
#include <stdatomic.h>

enum { WAKES = 300, SOON = 1000000 };

static int ends[2];
static atomic_int has_run;

static long used(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *waits(void *unused)
{
    char byte;
    for (int i = 0; i < WAKES; i++) {
        MUST(read(ends[0], &byte, 1) != 1);
        has_run = 1;
    }
    return unused;
}

static void *wakes(void *unused)
{
    (void)unused;
    long soon = 0;
    for (int i = 0; i < WAKES; i++) {
        /* The other one waits by now, and this one has computed for a while. */
        long until = used() + 100000;
        while (used() < until) {
        }
        has_run = 0;
        long before = used();
        MUST(write(ends[1], "", 1) != 1);
        while (!has_run) {
        }
        soon += used() - before < SOON;
    }
    return (void *)soon;
}

/* The whole program on one of its processors: it has one virtual processor from its start. */
static void pin(char **argv)
{
    cpu_set_t all;
    cpu_set_t one;
    MUST(sched_getaffinity(0, sizeof all, &all));
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &one);
        }
    }
    MUST(sched_setaffinity(0, sizeof one, &one));
    execv("/proc/self/exe", (char *[]){ argv[0], "pinned", NULL });
    MUST(errno);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        pin(argv);
    }
    MUST(pipe(ends));
    pthread_t waiter = start(waits, NULL);
    pthread_t waker = start(wakes, NULL);
    long soon = (long)join(waker);
    join(waiter);
    check("runs_at_once", soon >= WAKES * 3 / 4, "%ld of %d", soon, WAKES);
    return verdict();
}
