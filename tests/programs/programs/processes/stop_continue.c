/* A child with threads is stopped and continued by signals; nothing is lost. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int rounds;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *body(void *unused)
{
    for (int i = 0; i < 60; i++) {
        pthread_mutex_lock(&mutex);
        atomic_fetch_add(&rounds, 1);
        pthread_mutex_unlock(&mutex);
        usleep(1000);
    }
    return unused;
}

int main(void)
{
    pid_t child = fork();
    if (child == 0) {
        pthread_t threads[5];
        for (int i = 0; i < 5; i++)
            threads[i] = start(body, NULL);
        for (int i = 0; i < 5; i++)
            join(threads[i]);
        _exit(atomic_load(&rounds) == 300 ? 7 : 1);
    }
    int stops = 0, status = 0;
    for (int i = 0; i < 5; i++) {
        kill(child, SIGSTOP);
        if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status))
            break;
        stops++;
        kill(child, SIGCONT);
        usleep(3000);
    }
    /* The child may have finished before the last stops came. */
    if (!WIFEXITED(status))
        waitpid(child, &status, 0);
    check("stop_continue", WIFEXITED(status) && WEXITSTATUS(status) == 7, "%d stops, status %#x",
          stops, status);
    return verdict();
}
