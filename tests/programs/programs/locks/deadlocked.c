/* A process whose threads wait for one another, and its parent, which reads what is said of that and ends it. With an
 * argument one thread waits for a time instead, and nothing is to be said. */
#include "case.h"
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static pthread_mutex_t fork_left = PTHREAD_MUTEX_INITIALIZER, fork_right = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

__attribute__((noinline)) static void *takes_left_then_right(void *unused)
{
    pthread_mutex_lock(&fork_left);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&fork_right);
    return unused;
}

__attribute__((noinline)) static void *takes_right_then_left(void *unused)
{
    pthread_mutex_lock(&fork_right);
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&fork_left);
    return unused;
}

__attribute__((noinline)) static void *waits_for_a_time(void *unused)
{
    pthread_mutex_lock(&fork_right);
    pthread_barrier_wait(&both);
    sleep(1);
    pthread_mutex_unlock(&fork_right);
    return unused;
}

static void dine(int ends)
{
    MUST(pthread_barrier_init(&both, NULL, 2));
    pthread_t first = start(takes_left_then_right, NULL);
    pthread_t second = start(ends ? waits_for_a_time : takes_right_then_left, NULL);
    join(first);
    join(second);
}

/* Returns when both are named, or nobody can say more. */
static int says_who_waits(int from)
{
    static char said[1 << 16];
    size_t length = 0;
    for (;;) {
        ssize_t more = read(from, said + length, sizeof said - 1 - length);
        if (more <= 0)
            break;
        length += (size_t)more;
        said[length] = 0;
        if (strstr(said, "deadlock: all 3 threads") && strstr(said, "takes_left_then_right") &&
            strstr(said, "takes_right_then_left") && strstr(said, "dine"))
            return 1;
    }
    fprintf(stderr, "%s", said);
    return length != 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    int pipes[2], status, ends = argc > 1;
    (void)argv;
    MUST(pipe(pipes));
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        dine(ends);
        _exit(7);
    }
    close(pipes[1]);
    int said = says_who_waits(pipes[0]);
    if (!ends)
        kill(child, SIGKILL);
    MUST(waitpid(child, &status, 0) != child);
    int ended = WIFEXITED(status) && WEXITSTATUS(status) == 7;
    check("deadlock", said == !ends && ended == ends, "said %d, status %d", said, status);
    return verdict();
}
