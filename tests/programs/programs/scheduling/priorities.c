/* Under `--policy=priority`, on one virtual processor: what threads ask for decides who runs first. */
#include "runners.h"
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>

enum { THREADS = 6, DEADLINE = 6 };

static const struct {
    int policy, priority, nice;
} wanted[THREADS] = {
    {.policy = SCHED_OTHER, .nice = 5}, {.policy = SCHED_RR, .priority = 10},
    {.policy = SCHED_IDLE},             {.policy = SCHED_FIFO, .priority = 20},
    {.policy = SCHED_OTHER},            {.policy = SCHED_OTHER, .nice = -5},
};
/* The place of each thread in the order in which they must run, from 1 on. */
static const int places[THREADS] = {5, 2, 6, 1, 4, 3};

static int set(int policy, int priority)
{
    struct sched_param parameters = {priority};
    return sched_setscheduler(0, policy, &parameters) == 0 ? 0 : errno;
}

static void *is_inherited(void *unused)
{
    struct sched_param has = {0};
    int policy = 0;
    (void)unused;
    /* libc would answer by itself. */
    policy = sched_getscheduler(0);
    sched_getparam(0, &has);
    return (void *)(long)(policy == SCHED_RR && has.sched_priority == 50);
}

int main(void)
{
    struct sched_param has = {0};
    uint64_t deadlines[6] = {sizeof deadlines | (uint64_t)DEADLINE << 32, 0, 0, 1000000, 10000000, 10000000};
    void *inherited;
    begin_runners(THREADS);
    check("sets", set(SCHED_RR, 50) == 0 && sched_getscheduler(0) == SCHED_RR &&
                      sched_getparam(0, &has) == 0 && has.sched_priority == 50,
          "policy %d, priority %d", sched_getscheduler(0), has.sched_priority);
    check("refuses", set(SCHED_RR, 0) == EINVAL && set(SCHED_FIFO, 100) == EINVAL &&
                         set(SCHED_OTHER, 1) == EINVAL && set(77, 0) == EINVAL,
          "something else than EINVAL");
    check("refuses_deadlines", syscall(SYS_sched_setattr, 0, deadlines, 0) == -1 && errno == EPERM, "errno %d", errno);
    MUST(pthread_join(start(is_inherited, NULL), &inherited));
    check("inherits", inherited != NULL, "another policy");
    for (int i = 0; i < THREADS; i++) {
        struct sched_param parameters = {wanted[i].priority};
        int id = id_of_runner(i);
        MUST(sched_setscheduler(id, wanted[i].policy, &parameters));
        MUST(setpriority(PRIO_PROCESS, (id_t)id, wanted[i].nice));
        errno = 0;
        int nice = getpriority(PRIO_PROCESS, (id_t)id);
        if (nice != wanted[i].nice || errno != 0)
            check("nice", 0, "%d instead of %d, errno %d", nice, wanted[i].nice, errno);
    }
    let_run(THREADS, places);
    return verdict();
}
