/* fork from a thread while others run and allocate: the child has one thread, can start more, and
 * its exit status arrives. */
#include "case.h"
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int stop;

static void *noise(void *unused)
{
    while (!atomic_load(&stop)) {
        free(malloc(1000));
        sched_yield();
    }
    return unused;
}

static void *in_child(void *value)
{
    usleep(1000);
    return (void *)((long)value + 2);
}

static void *forker(void *unused)
{
    (void)unused;
    long fine = 0;
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            long sum = 0;
            pthread_t threads[3];
            for (int k = 0; k < 3; k++)
                threads[k] = start(in_child, (void *)0);
            for (int k = 0; k < 3; k++)
                sum += (long)join(threads[k]);
            _exit(sum == 6 ? 10 + i : 1);
        }
        int status;
        if (waitpid(child, &status, 0) == child && WIFEXITED(status) &&
            WEXITSTATUS(status) == 10 + i)
            fine++;
    }
    return (void *)fine;
}

int main(void)
{
    pthread_t noises[6];
    for (int i = 0; i < 6; i++)
        noises[i] = start(noise, NULL);
    long fine = (long)join(start(forker, NULL));
    check("fork_from_thread", fine == 10, "%ld of 10 children were right", fine);
    atomic_store(&stop, 1);
    for (int i = 0; i < 6; i++)
        join(noises[i]);
    return verdict();
}
