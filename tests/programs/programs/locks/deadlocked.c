/* A process whose threads wait for one another, and its parent, which reads what is said of that and ends it. With an
 * argument one thread waits for a time instead, and nothing is to be said. */
#include "said.h"
#include <signal.h>
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

int main(int argc, char **argv)
{
    static const char *const words[] = {"deadlock: all 3 threads", "takes_left_then_right",
                                        "takes_right_then_left", "dine", NULL};
    int from, status, ends = argc > 1;
    (void)argv;
    pid_t child = start_said(dine, ends, &from);
    int said = says_all(from, words, -1);
    if (!ends)
        kill(child, SIGKILL);
    MUST(waitpid(child, &status, 0) != child);
    int ended = WIFEXITED(status) && WEXITSTATUS(status) == 7;
    check("deadlock", said == !ends && ended == ends, "said %d, status %d", said, status);
    return verdict();
}
