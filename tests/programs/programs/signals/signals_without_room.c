/* Signals reach their threads although the kernel may queue none (RLIMIT_SIGPENDING 0): one that
 * computes, one that is parked, and whatever could be sent at all. */
#include "case.h"
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

#define ROUNDS 300
static atomic_int handled, stop;
static sem_t never;

static void handler(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static void *computes(void *unused)
{
    while (!atomic_load(&stop)) {
    }
    return unused;
}

static void *parks(void *unused)
{
    while (sem_wait(&never) != 0) {
    }
    return unused;
}

/* Sends and waits until it has arrived. Returns true if it could be sent. */
static int sent(pthread_t thread, int signal)
{
    int before = atomic_load(&handled);
    int answer = pthread_kill(thread, signal);
    if (answer == EAGAIN)
        return 0;
    MUST(answer);
    while (atomic_load(&handled) == before)
        sched_yield();
    return 1;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(sigaction(SIGRTMIN, &action, NULL));
    MUST(sem_init(&never, 0, 0));
    pthread_t computing = start(computes, NULL), parked = start(parks, NULL);
    settle();
    struct rlimit none = {0, 0};
    MUST(getrlimit(RLIMIT_SIGPENDING, &none));
    none.rlim_cur = 0;
    MUST(setrlimit(RLIMIT_SIGPENDING, &none));
    int standard = 0;
    for (int i = 0; i < ROUNDS; i++) {
        standard += sent(computing, SIGUSR1) + sent(parked, SIGUSR1);
        sent(computing, SIGRTMIN);
        sent(parked, SIGRTMIN);
    }
    atomic_store(&stop, 1);
    sem_post(&never);
    join(computing);
    join(parked);
    check("signals_without_room", standard == 2 * ROUNDS, "%d sent", standard);
    return verdict();
}
