/* A counter that a thread opens for itself (perf_event_open(2) with the id 0) counts what that thread does, wherever it
 * runs, and nothing that others do. Where the kernel gives none there is nothing to compare. */
#include "crowd.h"
#include <linux/perf_event.h>
#include <sys/syscall.h>

static void *body(void *unused)
{
    (void)unused;
    struct perf_event_attr wanted = {.type = PERF_TYPE_SOFTWARE, .size = sizeof wanted,
                                     .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1, .exclude_hv = 1};
    int counter = (int)syscall(SYS_perf_event_open, &wanted, 0, -1, -1, 0L);
    if (counter < 0)
        return NULL;
    long long used = now(CLOCK_THREAD_CPUTIME_ID), counted;
    for (int i = 0; i < 100; i++) {
        for (volatile int spin = 0; spin < 200000; spin++) {
        }
        usleep(300);
    }
    used = now(CLOCK_THREAD_CPUTIME_ID) - used;
    MUST(read(counter, &counted, sizeof counted) != sizeof counted);
    close(counter);
    check("counts_of_one_thread", counted > used / 2 && counted < used + used / 2, "counted %lld, used %lld", counted,
          used);
    return (void *)1;
}

int main(void)
{
    begin_crowd();
    if (join(start(body, NULL)) == NULL)
        check("counts_of_one_thread", 1, "no counter");
    end_crowd();
    return verdict();
}
