/* Threads whose children never end by themselves: somebody kills each. */
#include "case.h"
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define THREADS 6
#define EACH 15

extern char **environ;
static atomic_int killed, otherwise;

static void *begets(void *unused)
{
    for (int i = 0; i < EACH; i++) {
        char *words[] = {"sleep", "10000", NULL};
        pid_t child;
        int status;
        if (i % 2) {
            MUST(posix_spawnp(&child, "sleep", NULL, NULL, words, environ));
        } else {
            child = fork();
            MUST(child < 0);
            if (child == 0) {
                execvp("sleep", words);
                _exit(127);
            }
        }
        while (waitpid(child, &status, 0) != child)
            MUST(errno != EINTR);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            atomic_fetch_add(&killed, 1);
        else
            atomic_fetch_add(&otherwise, 1);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(begets, NULL);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("soak_children", killed == THREADS * EACH && otherwise == 0, "%d killed, %d otherwise",
          killed, otherwise);
    return verdict();
}
