/* Threads that sleep and compute in turn, so that a thread that parks meanwhile runs again on another
 * activation. */
#ifndef CROWD_H
#define CROWD_H
#include "case.h"
#include <stdatomic.h>

static pthread_t crowd[4];
static atomic_int crowd_stops;

static void *crowd_body(void *unused)
{
    (void)unused;
    while (!atomic_load(&crowd_stops)) {
        usleep(200);
        for (volatile int i = 0; i < 20000; i++) {
        }
    }
    return NULL;
}

static void begin_crowd(void)
{
    for (int i = 0; i < 4; i++)
        crowd[i] = start(crowd_body, NULL);
}

static void end_crowd(void)
{
    atomic_store(&crowd_stops, 1);
    for (int i = 0; i < 4; i++)
        join(crowd[i]);
}

#endif
