/* The child of a fork from a thread returns from that thread's function, its process ends as by
 * pthread_exit of the last thread: status 0. The child of main returns from main. */
#include "case.h"
#include <sys/wait.h>

static pid_t child;

static void *forker(void *unused)
{
    child = fork();
    return unused;
}

static int status_of(pid_t pid)
{
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

int main(void)
{
    fflush(stdout);
    pthread_t thread = start(forker, NULL);
    join(thread);
    int status = status_of(child);
    check("fork_thread_return", WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
    child = fork();
    if (child == 0)
        return 9;
    status = status_of(child);
    check("fork_main_return", WIFEXITED(status) && WEXITSTATUS(status) == 9, "status %#x", status);
    return verdict();
}
