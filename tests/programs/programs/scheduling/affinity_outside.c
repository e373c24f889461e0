/* Another process changes the affinity of all kernel threads, as `taskset -ap` does: threads go
 * where they may be and nowhere else, and the program sees its new set. */
#include "tasks.h"
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

int main(void)
{
    enum { THREADS = 3 };
    cpu_set_t allowed;
    MUST(sched_getaffinity(0, sizeof allowed, &allowed));
    int target = last_processor(&allowed);
    pthread_t threads[THREADS];
    left = THREADS;
    for (int index = 0; index < THREADS; index++) {
        MUST(pthread_create(&threads[index], NULL, compute, NULL));
    }
    settle();
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        int failures;
        bind_tasks(self, target, 1, &failures);
        _exit(failures);
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
