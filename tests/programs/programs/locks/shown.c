/* A process that shows its threads at SIGQUIT, time after time, and goes on: with threads that wait for a lock, in the
 * kernel and for a time, and one that computes. Its own action for the signal is never taken. With an argument it has one
 * thread alone. */
#include "said.h"
#include <signal.h>
#include <sys/wait.h>

enum { TIMES = 3 };

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static int to_child[2], to_parent[2];
static volatile int ends, was_called;

static void is_called(int signal)
{
    (void)signal;
    was_called = 1;
}

__attribute__((noinline)) static void *waits_for_a_lock(void *unused)
{
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    return unused;
}

__attribute__((noinline)) static void *waits_for_a_time(void *unused)
{
    struct timespec left = {0, 1000 * 1000};
    while (!ends)
        nanosleep(&left, NULL);
    return unused;
}

__attribute__((noinline)) static void *computes(void *unused)
{
    while (!ends)
        ;
    return unused;
}

/* No call of it is cut short. */
__attribute__((noinline)) static void reads_until_the_end(void)
{
    char byte;
    MUST(write(to_parent[1], "r", 1) != 1);
    MUST(read(to_child[0], &byte, 1) != 1);
}

static void is_looked_at(int alone)
{
    struct sigaction action = {.sa_handler = is_called};
    pthread_t threads[3];
    close(to_child[1]);
    MUST(sigaction(SIGQUIT, &action, NULL));
    MUST(pthread_mutex_lock(&held));
    if (!alone) {
        threads[0] = start(waits_for_a_lock, NULL);
        threads[1] = start(waits_for_a_time, NULL);
        threads[2] = start(computes, NULL);
    }
    reads_until_the_end();
    ends = 1;
    MUST(pthread_mutex_unlock(&held));
    for (int i = 0; !alone && i < 3; i++)
        join(threads[i]);
    MUST(sigaction(SIGQUIT, NULL, &action));
    _exit(was_called || action.sa_handler != is_called ? 1 : 7);
}

int main(int argc, char **argv)
{
    static const char *const of_threads[] = {"4 threads", "waits_for_a_lock", "waits_for_a_time",
                                             "reads_until_the_end", NULL};
    static const char *const of_one[] = {"upcall", NULL};
    int from, status, alone = argc > 1;
    (void)argv;
    MUST(pipe(to_child));
    MUST(pipe(to_parent));
    pid_t child = start_said(is_looked_at, alone, &from);
    char byte;
    close(to_parent[1]);
    MUST(read(to_parent[0], &byte, 1) != 1);
    int said = 0, answer = -1;
    /* Of a thread that runs at that moment nobody knows where it is: then it is asked again. */
    while (said < TIMES && answer != 0) {
        MUST(kill(child, SIGQUIT));
        answer = says_all(from, alone ? of_one : of_threads, 1000);
        said += answer == 1;
    }
    MUST(write(to_child[1], "e", 1) != 1);
    MUST(waitpid(child, &status, 0) != child);
    check("shown", said == TIMES && WIFEXITED(status) && WEXITSTATUS(status) == 7,
          "said %d times, status %#x", said, status);
    return verdict();
}
