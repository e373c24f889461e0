/* A signal that comes when its thread has looked for it and is about to wait, be it preempted there,
 * ends the wait all the same. */
#include "case.h"
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>

enum { ROUNDS = 15000, PAIRS = 2 };

struct pair {
    pthread_t receiver;
    int way;
    atomic_int begun, ended, late;
};

static sigset_t wanted, others;

static void handler(int signal) { (void)signal; }

static void *receives(void *argument)
{
    struct pair *own = argument;
    struct timespec time = {20, 0};
    MUST(pthread_sigmask(SIG_BLOCK, &wanted, NULL));
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(&own->begun, round + 1);
        int answer = own->way == 0 ? sigtimedwait(&wanted, NULL, &time)
                                   : ppoll(NULL, 0, &time, &others) + 1 + SIGUSR1;
        if (answer != SIGUSR1)
            atomic_fetch_add(&own->late, 1);
        atomic_store(&own->ended, round + 1);
        if (atomic_load(&own->late) != 0)
            break;
    }
    atomic_store(&own->ended, ROUNDS);
    return NULL;
}

static void *sends(void *argument)
{
    struct pair *own = argument;
    for (int round = 0; round < ROUNDS; round++) {
        while (atomic_load(&own->begun) <= round && atomic_load(&own->ended) != ROUNDS)
            sched_yield();
        for (volatile int spin = 0; spin < round % 500; spin++) {
        }
        if (atomic_load(&own->ended) == ROUNDS)
            break;
        pthread_kill(own->receiver, SIGUSR1);
        while (atomic_load(&own->ended) <= round)
            sched_yield();
    }
    return NULL;
}

int main(void)
{
    static const char *names[2] = {"sigtimedwait", "ppoll"};
    static struct pair pairs[2][PAIRS];
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL));
    sigemptyset(&others);
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGUSR1);
    for (int way = 0; way < 2; way++) {
        pthread_t senders[PAIRS];
        int late = 0;
        for (int i = 0; i < PAIRS; i++) {
            pairs[way][i].way = way;
            pairs[way][i].receiver = start(receives, &pairs[way][i]);
            senders[i] = start(sends, &pairs[way][i]);
        }
        for (int i = 0; i < PAIRS; i++) {
            join(senders[i]);
            join(pairs[way][i].receiver);
            late += atomic_load(&pairs[way][i].late);
        }
        check(names[way], late == 0, "%d of %d waits ended by their timeout", late, PAIRS);
    }
    return verdict();
}
