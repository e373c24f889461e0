/* Threads that compute, or do so and yield, are given nice values by the main thread. Each gets its own while it still
 * computes: the kernel has a task with that value that can run, before the thread has done a number of rounds. What the
 * threads compute is right, in the vector registers, too. */
#include "case.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 4, FIRST_NICE = 11, MOST_LOOKS = 20000 };

static struct {
    atomic_int id, wrong;
    atomic_ulong rounds;
} threads[THREADS];
static atomic_int over;

/* The same sum in an integer register and in a vector register. */
static void *compute(void *argument)
{
    int i = (int)(long)argument;
    atomic_store(&threads[i].id, (int)syscall(SYS_gettid));
    while (!atomic_load(&over)) {
        unsigned long sum = 0, steps = 20000, vector = 0;
        __asm__ volatile("pxor %%xmm7, %%xmm7\n"
                         "1: movq %[steps], %%xmm6\n"
                         "paddq %%xmm6, %%xmm7\n"
                         "add %[steps], %[sum]\n"
                         "dec %[steps]\n"
                         "jnz 1b\n"
                         "movq %%xmm7, %[vector]\n"
                         : [sum] "+r"(sum), [steps] "+r"(steps), [vector] "=r"(vector)
                         :
                         : "xmm6", "xmm7", "cc");
        if (sum != 200010000ul || vector != sum)
            atomic_fetch_add(&threads[i].wrong, 1);
        atomic_fetch_add(&threads[i].rounds, 1);
        if (i % 2 != 0)
            sched_yield();
    }
    return NULL;
}

/* Whether a task of this process's that can run has the nice value. Another process looks: this one sees its threads. */
static int has_task(int nice)
{
    char command[100], line[1024];
    snprintf(command, sizeof command, "cat /proc/%d/task/*/stat 2>/dev/null", (int)getpid());
    FILE *stats = popen(command, "r");
    MUST(stats == NULL);
    int found = 0;
    while (fgets(line, sizeof line, stats) != NULL) {
        char *rest = strrchr(line, ')');
        char state;
        int own;
        if (rest != NULL
            && sscanf(rest + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %d",
                      &state, &own) == 2
            && own == nice && state == 'R')
            found = 1;
    }
    pclose(stats);
    return found;
}

int main(void)
{
    pthread_t all[THREADS];
    for (long i = 0; i < THREADS; i++)
        MUST(pthread_create(&all[i], NULL, compute, (void *)i) != 0);
    for (int i = 0; i < THREADS; i++) {
        while (atomic_load(&threads[i].id) == 0)
            usleep(1000);
        MUST(setpriority(PRIO_PROCESS, (id_t)atomic_load(&threads[i].id), FIRST_NICE + i) != 0);
    }
    int missing = 0;
    for (int i = 0; i < THREADS; i++) {
        unsigned long before = atomic_load(&threads[i].rounds);
        int looks = 0, found = 0;
        while (!(found = has_task(FIRST_NICE + i))
               && (looks++ < 20 || atomic_load(&threads[i].rounds) - before < MOST_LOOKS))
            usleep(1000);
        missing += !found;
        if (!found)
            printf("thread %d has not got its nice value\n", i);
    }
    atomic_store(&over, 1);
    int wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(all[i], NULL) != 0);
        wrong += atomic_load(&threads[i].wrong);
    }
    check("bound_by_other", missing == 0, "%d threads have not got their nice values", missing);
    check("bound_by_other_sums", wrong == 0, "%d sums were wrong", wrong);
    return verdict();
}
