/* Another process changes the affinity of all kernel threads, as `taskset -ap` does: threads go
 * where they may be and nowhere else, and the program sees its new set. */
#include "case.h"
#include <dirent.h>
#include <sched.h>
#include <sys/wait.h>

static int wanted = -1, left;

static void *compute(void *unused)
{
    (void)unused;
    /* Bounded: some seconds of processor time each. */
    for (int round = 0; round < 4000; round++) {
        for (volatile int busy = 0; busy < 300000; busy++) {
        }
        int there = __atomic_load_n(&wanted, __ATOMIC_ACQUIRE);
        if (there >= 0 && sched_getcpu() == there) {
            __atomic_fetch_sub(&left, 1, __ATOMIC_RELEASE);
            return NULL;
        }
    }
    return "stayed";
}

/* In a child: the mask of every kernel thread of `process`. */
static int change(pid_t process, const cpu_set_t *set)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", process);
    DIR *tasks = opendir(path);
    if (tasks == NULL) {
        return 1;
    }
    int failures = 0;
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] != '.' && sched_setaffinity(atoi(task->d_name), sizeof *set, set) != 0) {
            failures += errno != ESRCH;
        }
    }
    closedir(tasks);
    return failures;
}

int main(void)
{
    enum { THREADS = 3 };
    cpu_set_t allowed, one;
    MUST(sched_getaffinity(0, sizeof allowed, &allowed));
    int target = -1;
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        if (CPU_ISSET(processor, &allowed)) {
            target = processor;
        }
    }
    pthread_t threads[THREADS];
    left = THREADS;
    for (int index = 0; index < THREADS; index++) {
        MUST(pthread_create(&threads[index], NULL, compute, NULL));
    }
    settle();
    CPU_ZERO(&one);
    CPU_SET(target, &one);
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        _exit(change(self, &one));
    }
    int status = -1;
    MUST(waitpid(child, &status, 0) != child);
    check("the masks were changed", status == 0, "status %x", status);
    __atomic_store_n(&wanted, target, __ATOMIC_RELEASE);
    int stayed = 0;
    for (int index = 0; index < THREADS; index++) {
        void *result;
        MUST(pthread_join(threads[index], &result));
        stayed += result != NULL;
    }
    check("every thread ran where it was sent", stayed == 0, "%d stayed", stayed);
    return verdict();
}
