/* What calls about scheduling, priorities and affinity answer to right and wrong requests. */
#include "answers.h"
#include <sched.h>
#include <sys/resource.h>

static void ask(void)
{
    struct sched_param parameter = {0};
    struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t rest[5]; } attributes = {0};
    unsigned long cpus[16];
    ASK(syscall(SYS_sched_getscheduler, 0));
    ASK(syscall(SYS_sched_getscheduler, -1));
    ASK(syscall(SYS_sched_getscheduler, NO_ID));
    ASK(syscall(SYS_sched_getparam, 0, &parameter));
    ASK((long)parameter.sched_priority);
    ASK(syscall(SYS_sched_getparam, 0, NULL));
    ASK(syscall(SYS_sched_getparam, 0, NOWHERE));
    ASK(syscall(SYS_sched_getparam, -1, &parameter));
    parameter.sched_priority = 1;
    ASK(syscall(SYS_sched_setparam, 0, &parameter));
    ASK(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &parameter));
    parameter.sched_priority = 0;
    ASK(syscall(SYS_sched_setparam, 0, &parameter));
    ASK(syscall(SYS_sched_setparam, 0, NULL));
    ASK(syscall(SYS_sched_setparam, NO_ID, &parameter));
    ASK(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &parameter));
    ASK(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, NULL));
    ASK(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, NOWHERE));
    ASK(syscall(SYS_sched_setscheduler, 0, -1, &parameter));
    ASK(syscall(SYS_sched_setscheduler, 0, 77, &parameter));
    ASK(syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &parameter));
    ASK(syscall(SYS_sched_setscheduler, -1, SCHED_OTHER, &parameter));
    ASK(syscall(SYS_sched_setscheduler, NO_ID, SCHED_OTHER, &parameter));
    ASK(syscall(SYS_sched_getattr, 0, &attributes, 48, 0));
    ASK((long)attributes.policy);
    ASK(syscall(SYS_sched_getattr, 0, &attributes, 8, 0));
    ASK(syscall(SYS_sched_getattr, 0, &attributes, 48, 77));
    ASK(syscall(SYS_sched_getattr, 0, NULL, 48, 0));
    ASK(syscall(SYS_sched_getattr, -1, &attributes, 48, 0));
    ASK(syscall(SYS_sched_setattr, 0, &attributes, 77));
    ASK(syscall(SYS_sched_setattr, 0, NULL, 0));
    ASK(syscall(SYS_sched_setattr, 0, NOWHERE, 0));
    attributes.policy = 77;
    ASK(syscall(SYS_sched_setattr, 0, &attributes, 0));
    ASK(syscall(SYS_sched_get_priority_max, SCHED_FIFO));
    ASK(syscall(SYS_sched_get_priority_min, 77));
    ASK(syscall(SYS_sched_rr_get_interval, -1, NOWHERE));
    ASK(syscall(SYS_getpriority, PRIO_PROCESS, 0));
    ASK(syscall(SYS_getpriority, 77, 0));
    ASK(syscall(SYS_getpriority, PRIO_PROCESS, NO_ID));
    ASK(syscall(SYS_setpriority, 77, 0, 0));
    ASK(syscall(SYS_setpriority, PRIO_PROCESS, NO_ID, 0));
    ASK(syscall(SYS_setpriority, PRIO_PROCESS, 0, 0));
    WORKS(syscall(SYS_sched_getaffinity, 0, sizeof cpus, cpus));
    ASK(syscall(SYS_sched_getaffinity, 0, 0, cpus));
    ASK(syscall(SYS_sched_getaffinity, 0, 7, cpus));
    ASK(syscall(SYS_sched_getaffinity, 0, 9, cpus));
    ASK(syscall(SYS_sched_getaffinity, -1, sizeof cpus, cpus));
    ASK(syscall(SYS_sched_getaffinity, 0, sizeof cpus, NOWHERE));
    memset(cpus, 0, sizeof cpus);
    ASK(syscall(SYS_sched_setaffinity, 0, sizeof cpus, cpus));
    ASK(syscall(SYS_sched_setaffinity, 0, sizeof cpus, NOWHERE));
    ASK(syscall(SYS_sched_setaffinity, NO_ID, sizeof cpus, cpus));
    ASK(syscall(SYS_sched_setaffinity, 0, 0, NOWHERE));
    ASK(syscall(SYS_sched_yield));
}
