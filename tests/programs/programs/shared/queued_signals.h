/* Queued real-time signals with a number each: how many came, and what these sum up to. */
#ifndef QUEUED_SIGNALS_H
#define QUEUED_SIGNALS_H
#include "case.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

static atomic_long handled, sum;

static void handler(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    atomic_fetch_add(&sum, info->si_value.sival_int);
    atomic_fetch_add(&handled, 1);
}

static void handle_queued(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_RESTART | SA_SIGINFO};
    MUST(sigaction(SIGRTMIN, &action, NULL));
}

/* Until no more than so many of those that were sent are on their way. */
static void await_handled(long sent, long at_once)
{
    while (sent - atomic_load(&handled) > at_once)
        sched_yield();
}
#endif
