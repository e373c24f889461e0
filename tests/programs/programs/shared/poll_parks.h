/* A runtime may let the kernel wake a thread that waits for descriptors, or do it itself, and choose
 * by who has woken it so far. This makes it choose the second. */
#ifndef POLL_PARKS_H
#define POLL_PARKS_H
#include "case.h"
#include <poll.h>
#include <signal.h>

static int parks_quiet[2], parks_busy[2];

static void *parks_writes(void *unused)
{
    char byte = 0;
    for (;;) {
        if (write(parks_busy[1], &byte, 1) != 1 || read(parks_busy[0], &byte, 1) != 1)
            return unused;
        usleep(200);
    }
}

/* Once, before the threads. */
__attribute__((unused)) static void parks_begin(void)
{
    pthread_t thread;
    sigset_t all, before;
    MUST(pipe(parks_quiet));
    MUST(pipe(parks_busy));
    /* The program's signals are not for this thread. */
    sigfillset(&all);
    MUST(pthread_sigmask(SIG_SETMASK, &all, &before));
    MUST(pthread_create(&thread, NULL, parks_writes, NULL));
    MUST(pthread_sigmask(SIG_SETMASK, &before, NULL));
    MUST(pthread_detach(thread));
}

/* In a thread, before it waits. */
__attribute__((unused)) static void parks(void)
{
    struct pollfd one = {parks_quiet[0], POLLIN, 0};
    for (int i = 0; i < 8; i++)
        poll(&one, 1, 2);
}
#endif
