/* A signal for a thread that is about to open its mask, in libc's own code or in the program's, and to wait for the sender. */
#include "case.h"
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum { ROUNDS = 20000, PATIENCE = 5 };

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_t receiver;
static sem_t handled;
static atomic_int over, missed;

static void handler(int signal)
{
    (void)signal;
    sem_post(&handled);
}

/* Holds the lock until the signal was handled. */
static void *sends(void *unused)
{
    for (int round = 0; round < ROUNDS && !atomic_load(&missed); round++) {
        MUST(pthread_mutex_lock(&turn));
        MUST(pthread_kill(receiver, SIGUSR1));
        struct timespec limit;
        MUST(clock_gettime(CLOCK_REALTIME, &limit));
        limit.tv_sec += PATIENCE;
        while (sem_timedwait(&handled, &limit) == -1)
            if (errno != EINTR) {
                atomic_store(&missed, round + 1);
                break;
            }
        MUST(pthread_mutex_unlock(&turn));
    }
    atomic_store(&over, 1);
    return unused;
}

static void *nothing(void *unused)
{
    return unused;
}

static void by_libc(void)
{
    join(start(nothing, NULL));
}

static void by_program(void)
{
    sigset_t all;
    sigfillset(&all);
    MUST(pthread_sigmask(SIG_BLOCK, &all, NULL));
    MUST(pthread_sigmask(SIG_UNBLOCK, &all, NULL));
}

static void run(const char *name, void (*opens)(void))
{
    atomic_store(&over, 0);
    atomic_store(&missed, 0);
    pthread_t sender = start(sends, NULL);
    while (!atomic_load(&over)) {
        opens();
        MUST(pthread_mutex_lock(&turn));
        MUST(pthread_mutex_unlock(&turn));
    }
    join(sender);
    check(name, atomic_load(&missed) == 0, "not handled for %d s, round %d of %d", PATIENCE, atomic_load(&missed), ROUNDS);
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(sem_init(&handled, 0, 0));
    receiver = pthread_self();
    run("by_libc", by_libc);
    run("by_program", by_program);
    return verdict();
}
