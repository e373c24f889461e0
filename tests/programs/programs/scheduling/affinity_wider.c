/* The first thread has narrowed its processors before there were threads. Threads that ask for more, or for others, get
 * them; the others stay where they are. */
#include "case.h"
#include <sched.h>

static cpu_set_t all, one, other;
static int first = -1, last;

static int stays_on(int processor)
{
    long long end = now(CLOCK_THREAD_CPUTIME_ID) + 20 * 1000 * 1000;
    do {
        if (sched_getcpu() != processor)
            return 0;
    } while (now(CLOCK_THREAD_CPUTIME_ID) < end);
    return 1;
}

static int has(const cpu_set_t *wanted)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    return sched_getaffinity(0, sizeof mask, &mask) == 0 && CPU_EQUAL(&mask, wanted);
}

static void *narrow(void *unused) { return (void *)(long)(stays_on(first) && has(&one) && unused == NULL); }

static void *elsewhere(void *unused)
{
    MUST(sched_setaffinity(0, sizeof other, &other));
    return (void *)(long)(stays_on(last) && has(&other) && unused == NULL);
}

static void *wide(void *unused)
{
    MUST(sched_setaffinity(0, sizeof all, &all));
    return (void *)(long)(has(&all) && unused == NULL);
}

int main(void)
{
    MUST(sched_getaffinity(0, sizeof all, &all));
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) {
            first = first < 0 ? i : first;
            last = i;
        }
    CPU_SET(first, &one);
    CPU_SET(last, &other);
    MUST(sched_setaffinity(0, sizeof one, &one));
    check("affinity_narrow_before_threads", join(start(narrow, NULL)) != NULL, "not");
    check("affinity_elsewhere", join(start(elsewhere, NULL)) != NULL, "not");
    check("affinity_wider", join(start(wide, NULL)) != NULL, "not");
    MUST(sched_setaffinity(0, sizeof other, &other));
    check("affinity_first_thread_elsewhere", stays_on(last) && has(&other), "not");
    MUST(sched_setaffinity(0, sizeof all, &all));
    check("affinity_first_thread_everywhere", has(&all), "not");
    return verdict();
}
