/* What ordinary programs do: threads that compute, sleep, wait for each other, for pipes and for signals. */
#include "case.h"
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int turns;
static int forth[2], back[2];

static void *takes_turns(void *own)
{
    pthread_mutex_lock(&mutex);
    while (turns < 200) {
        if (turns % 2 == (int)(long)own) {
            turns++;
            pthread_cond_broadcast(&turn);
        } else {
            pthread_cond_wait(&turn, &mutex);
        }
    }
    pthread_mutex_unlock(&mutex);
    return own;
}

static void *answers(void *unused)
{
    char byte;
    while (read(forth[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1 && byte != 'z') {
    }
    return unused;
}

static void *sleeps(void *unused)
{
    settle();
    return unused;
}

static void *computes(void *to)
{
    for (volatile long i = 0; i < 20 * 1000 * 1000; i++) {
    }
    return to;
}

static void *waits_signal(void *set)
{
    int signal = 0;
    sigwait(set, &signal);
    return (void *)(long)signal;
}

static void joined(const char *name, pthread_t thread, long expected)
{
    void *result = NULL;
    int error = pthread_join(thread, &result);
    check(name, error == 0 && (long)result == expected, "%d, %ld", error, (long)result);
}

int main(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    MUST(pipe(forth));
    MUST(pipe(back));
    pthread_t threads[] = {start(takes_turns, (void *)0), start(takes_turns, (void *)1),
                           start(answers, (void *)2),     start(sleeps, (void *)3),
                           start(computes, (void *)4),    start(computes, (void *)5),
                           start(waits_signal, &set)};
    for (char byte = 'a'; byte <= 'z'; byte++) {
        char answer = 0;
        struct pollfd ready = {back[0], POLLIN, 0};
        if (write(forth[1], &byte, 1) != 1 || poll(&ready, 1, -1) != 1 ||
            read(back[0], &answer, 1) != 1 || answer != byte) {
            check("pipe", 0, "%d came for %d, errno %d", answer, byte, errno);
        }
    }
    settle();
    MUST(pthread_kill(threads[6], SIGUSR1));
    joined("turns", threads[0], 0);
    joined("other turns", threads[1], 1);
    joined("pipes", threads[2], 2);
    joined("sleep", threads[3], 3);
    joined("computing", threads[4], 4);
    joined("more computing", threads[5], 5);
    joined("signal", threads[6], SIGUSR1);
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec = (at.tv_nsec + 20 * 1000 * 1000) % (1000 * 1000 * 1000);
    pthread_mutex_lock(&mutex);
    int timed_out = pthread_cond_timedwait(&turn, &mutex, &at);
    pthread_mutex_unlock(&mutex);
    check("timed wait", timed_out == ETIMEDOUT, "%d", timed_out);
    pid_t child = fork();
    if (child == 0) {
        joined("thread of the child", start(computes, (void *)6), 6);
        _exit(verdict());
    }
    int status = -1;
    check("child", waitpid(child, &status, 0) == child && status == 0, "%x", status);
    return verdict();
}
