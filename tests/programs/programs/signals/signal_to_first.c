/* A signal that another thread sends to the process comes to the first thread while that accepts it, whatever that does: it
 * computes, sleeps, waits for a descriptor, or yields. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/select.h>

enum { ROUNDS = 500 };

static pthread_t first;
static atomic_int got, elsewhere, turns, over;

static void handle(int signal)
{
    (void)signal;
    elsewhere += !pthread_equal(pthread_self(), first);
    got++;
}

static void *computes(void *unused)
{
    while (!over) {
    }
    return unused;
}

static void *sleeps(void *unused)
{
    while (!over) {
        usleep(500);
    }
    return unused;
}

static void *sends(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        int before = got;
        MUST(kill(getpid(), SIGUSR1));
        while (got == before) {
            sched_yield();
        }
        /* Its handler is over, in which it blocks the signal. */
        before = turns;
        while (turns == before) {
            sched_yield();
        }
    }
    over = 1;
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handle};
    first = pthread_self();
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[] = {start(computes, NULL), start(sleeps, NULL), start(sends, NULL)};
    for (int kind = 0; !over; kind++, turns++) {
        struct timeval moment = {0, 300};
        switch (kind % 4) {
        case 0:
            for (volatile int i = 0; i < 20000; i++) {
            }
            break;
        case 1:
            usleep(300);
            break;
        case 2:
            sched_yield();
            break;
        default:
            select(0, NULL, NULL, NULL, &moment);
        }
    }
    for (int i = 0; i < 3; i++) {
        join(threads[i]);
    }
    /* The kernel passes over a thread that it has told to look for signals, and that has not run since. That is rare. */
    check("to_first", elsewhere <= ROUNDS / 100, "%d of %d elsewhere", elsewhere, got);
    check("each_once", got == ROUNDS, "%d", got);
    return verdict();
}
