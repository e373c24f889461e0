/* Threads with one processor each, and threads without a wish: both go on while the others compute, none of them loses a
 * wake-up of the others, and a lock and a pipe serve both kinds. */
#include "case.h"
#include <sched.h>
#include <stdatomic.h>

enum { FREE = 4, ROUNDS = 300, STEPS = 20 };

static cpu_set_t all;
static _Atomic long steps[2 + FREE];
static _Atomic int stop;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn;
static int pipes[2][2];

static void pin(int number)
{
    cpu_set_t one;
    int which = number % CPU_COUNT(&all);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && which-- == 0)
            CPU_SET(i, &one);
    MUST(pthread_setaffinity_np(pthread_self(), sizeof one, &one));
}

/* The first two have one processor each. */
static void *computes(void *number)
{
    long own = (long)number;
    if (own < 2)
        pin((int)own);
    while (!atomic_load(&stop)) {
        for (volatile int i = 0; i < 1000000; i++) {
        }
        atomic_fetch_add(&steps[own], 1);
    }
    return NULL;
}

/* Members take turns, every second one of them has one processor. */
static void *takes_turns(void *number)
{
    long own = (long)number;
    if (own % 2 == 0)
        pin((int)own / 2);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&lock);
        while (turn % (2 + FREE) != own)
            pthread_cond_wait(&changed, &lock);
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

static void *passes_on(void *number)
{
    long own = (long)number;
    char byte = 0;
    if (own == 0)
        pin(1);
    for (int round = 0; round < ROUNDS; round++) {
        MUST(own == 0 && write(pipes[0][1], &byte, 1) != 1);
        MUST(read(pipes[own == 0][0], &byte, 1) != 1);
        MUST(own == 1 && write(pipes[1][1], &byte, 1) != 1);
    }
    return NULL;
}

static void run(void *(*what)(void *), long count)
{
    pthread_t threads[2 + FREE];
    for (long i = 0; i < count; i++)
        threads[i] = start(what, (void *)i);
    for (long i = 0; i < count; i++)
        join(threads[i]);
}

int main(void)
{
    MUST(sched_getaffinity(0, sizeof all, &all));
    MUST(pipe(pipes[0]) | pipe(pipes[1]));
    pthread_t threads[2 + FREE];
    for (long i = 0; i < 2 + FREE; i++)
        threads[i] = start(computes, (void *)i);
    for (int i = 0; i < 2 + FREE; i++)
        while (atomic_load(&steps[i]) < STEPS)
            settle();
    /* Beside all these. */
    run(takes_turns, 2 + FREE);
    run(passes_on, 2);
    atomic_store(&stop, 1);
    for (int i = 0; i < 2 + FREE; i++)
        join(threads[i]);
    run(takes_turns, 2 + FREE);
    run(passes_on, 2);
    check("affinity_beside_turns", turn == 2 * ROUNDS * (2 + FREE), "%d", turn);
    return verdict();
}
