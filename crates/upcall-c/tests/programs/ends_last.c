/* A process whose first thread has ended, or is its parent's, ends with its last thread, also where a thread of the library's own was
 * made just before and has not run: one that gives back the stacks of more than 256 threads. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <upcall.h>

enum { CHILDREN = 12, THREADS = 256 };

static void *waits(void *semaphore)
{
    upcall_semaphore_wait(semaphore);
    return NULL;
}

/* Waits for the child's end, for twenty seconds. Nothing else ends one in which only the library's threads are left. */
static int ends(pid_t child, int *status)
{
    for (int i = 0; i < 20000; i++) {
        if (waitpid(child, status, WNOHANG) == child)
            return 1;
        usleep(1000);
    }
    kill(child, SIGKILL);
    waitpid(child, status, 0);
    return 0;
}

static void *forks(void *wrong)
{
    static upcall_semaphore_t semaphore = UPCALL_SEMAPHORE_INITIALIZER(0);
    static upcall_thread_t threads[THREADS + 4];
    for (int i = 0; i < CHILDREN; i++) {
        int status = -1, count = THREADS + i % 4;
        pid_t child = fork();
        if (child == 0) {
            for (int k = 0; k < count; k++)
                if (upcall_thread_create(&threads[k], NULL, waits, &semaphore) != 0)
                    _exit(1);
            for (int k = 0; k < count; k++)
                upcall_semaphore_post(&semaphore);
            return NULL;
        }
        if (!ends(child, &status) || status != 0)
            *(int *)wrong += 1;
    }
    return NULL;
}

int main(void)
{
    int wrong = 0;
    upcall_thread_t thread;
    if (upcall_thread_create(&thread, NULL, forks, &wrong) != 0 || upcall_thread_join(thread, NULL) != 0)
        return 2;
    puts(wrong == 0 ? "ok" : "a child did not end as its last thread did");
    return wrong != 0;
}
