/* A signal for the process that only a parked thread accepts, while threads that block it compute
 * on every processor. */
#include "case.h"
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

static atomic_int handled, wrong, stop, ready;
static _Thread_local int accepts;
static sem_t never;

static void handler(int signal)
{
    (void)signal;
    if (!accepts)
        atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&handled, 1);
    sem_post(&never);
}

static void *computes(void *unused)
{
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop)) {
    }
    return unused;
}

static void *parks(void *unused)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    accepts = 1;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    atomic_fetch_add(&ready, 1);
    for (int i = 0; i < 5; i++)
        while (sem_wait(&never) != 0) {
        }
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(sem_init(&never, 0, 0));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    int count = (int)sysconf(_SC_NPROCESSORS_ONLN) + 1;
    pthread_t others[count], parked = start(parks, NULL);
    for (int i = 0; i < count; i++)
        others[i] = start(computes, NULL);
    while (atomic_load(&ready) < count + 1)
        sched_yield();
    settle();
    for (int i = 0; i < 5; i++) {
        kill(getpid(), SIGUSR1);
        while (atomic_load(&handled) <= i) {
        }
    }
    join(parked);
    atomic_store(&stop, 1);
    for (int i = 0; i < count; i++)
        join(others[i]);
    check("signal_to_parked", handled == 5 && wrong == 0, "%d handled, %d elsewhere", handled, wrong);
    return verdict();
}
