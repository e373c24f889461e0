/* The affinity of a process's kernel threads, as taskset(1) changes it. */
#ifndef TASKS_H
#define TASKS_H
#include "case.h"
#include <dirent.h>
#include <sched.h>

/* The last processor of a set; -1 for an empty one. */
__attribute__((unused)) static int last_processor(const cpu_set_t *set)
{
    int last = -1;
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        if (CPU_ISSET(processor, set)) {
            last = processor;
        }
    }
    return last;
}

/* The processor `target` for each kernel thread of `process` that may run on others, too, or for `all`. Returns how many were changed;
 * `failures` is how many could not be, without having ended. */
__attribute__((unused)) static int bind_tasks(pid_t process, int target, int all, int *failures)
{
    char path[64];
    int changed = 0;
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    *failures = tasks == NULL;
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        cpu_set_t set;
        int id = atoi(task->d_name);
        if (id == 0 || (!all && (sched_getaffinity(id, sizeof set, &set) != 0 || CPU_COUNT(&set) < 2))) {
            continue;
        }
        CPU_ZERO(&set);
        CPU_SET(target, &set);
        if (sched_setaffinity(id, sizeof set, &set) == 0) {
            changed++;
        } else {
            *failures += errno != ESRCH;
        }
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return changed;
}
#endif
