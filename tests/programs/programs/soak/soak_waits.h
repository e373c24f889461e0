/* Waits that the soak programs have in common, TURNS of each: a ring of RING pipes, and a condition that
 * is passed around by four threads. */
#ifndef SOAK_WAITS_H
#define SOAK_WAITS_H
#include "case.h"

/* read(2) and write(2) of one word; with a handler that restarts calls neither is cut short. */
static int get(int fd, long *word)
{
    return read(fd, word, sizeof *word) == sizeof *word ? 0 : -1;
}
static int put(int fd, long word)
{
    return write(fd, &word, sizeof word) == sizeof word ? 0 : -1;
}

static int pipes[RING][2];

static void *ring(void *number)
{
    long own = (long)number, word;
    for (;;) {
        MUST(get(pipes[own][0], &word));
        MUST(put(pipes[(own + 1) % RING][1], word + 1));
        if (word >= TURNS * RING)
            return NULL;
    }
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static long turn;

static void *takes_turns(void *number)
{
    for (long i = 0; i < TURNS; i++) {
        pthread_mutex_lock(&mutex);
        while (turn % 4 != (long)number)
            pthread_cond_wait(&turn_changed, &mutex);
        turn++;
        pthread_cond_broadcast(&turn_changed);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

#endif
