/* A signal that comes while the handler of another one begins, in the middle of a system call: both
 * handlers run, each once for each signal, and the thread goes on with its call. */
#include "case.h"
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#define ROUNDS 15000
static sem_t next[2];
static atomic_long handled[2];
static atomic_int stop;

static void handler(int signal)
{
    int which = signal == SIGUSR2;
    atomic_fetch_add(&handled[which], 1);
    sem_post(&next[which]);
}

static void *sender(void *number)
{
    long which = (long)number;
    for (int i = 0; i < ROUNDS; i++) {
        while (sem_wait(&next[which]) != 0) {
        }
        MUST(kill(getpid(), which ? SIGUSR2 : SIGUSR1));
    }
    return NULL;
}

static void *worker(void *unused)
{
    (void)unused;
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    MUST(pthread_sigmask(SIG_UNBLOCK, &both, NULL));
    long failed = 0;
    while (!atomic_load(&stop))
        failed += access("/", F_OK) != 0;
    return (void *)failed;
}

int main(void)
{
    /* Without a mask, so that each interrupts the other's handler. */
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(sigaction(SIGUSR2, &action, NULL));
    sigset_t both;
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    MUST(pthread_sigmask(SIG_BLOCK, &both, NULL));
    for (int i = 0; i < 2; i++)
        MUST(sem_init(&next[i], 0, 1));
    pthread_t worked = start(worker, NULL);
    pthread_t senders[2];
    for (long i = 0; i < 2; i++)
        senders[i] = start(sender, (void *)i);
    for (int i = 0; i < 2; i++)
        join(senders[i]);
    for (int i = 0; i < 2; i++)
        while (sem_wait(&next[i]) != 0) {
        }
    atomic_store(&stop, 1);
    long failed = (long)join(worked);
    check("signal_in_handler_entry", handled[0] == ROUNDS && handled[1] == ROUNDS,
          "%ld and %ld of %d handled", handled[0], handled[1], ROUNDS);
    check("signal_in_handler_entry_calls", failed == 0, "%ld calls failed", failed);
    return verdict();
}
