/* Children of a process whose other threads start threads meanwhile: a child can start threads, too. */
#include "case.h"
#include <stdatomic.h>
#include <sys/wait.h>

#define CHILDREN 1000

static atomic_int over;

static void *nothing(void *unused) { return unused; }

static void *starts(void *unused)
{
    while (!atomic_load(&over))
        join(start(nothing, NULL));
    return unused;
}

int main(void)
{
    pthread_t threads[3];
    int ended = 0;
    for (int i = 0; i < 3; i++)
        threads[i] = start(starts, NULL);
    while (ended < CHILDREN) {
        pid_t child = fork();
        int status;
        MUST(child < 0);
        if (child == 0) {
            join(start(nothing, NULL));
            _exit(7);
        }
        MUST(waitpid(child, &status, 0) != child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7)
            break;
        ended++;
    }
    atomic_store(&over, 1);
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    check("fork_while_threads_start", ended == CHILDREN, "child %d", ended);
    return verdict();
}
