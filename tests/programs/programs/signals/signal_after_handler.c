/* A signal for the process that comes while the only thread that accepts it handles one of its number is that thread's as soon
 * as the handler returns, before any further instruction. */
#include "case.h"

#include <sched.h>

#define ROUNDS 5000

static volatile sig_atomic_t handled, inside, sent, over;

static void handler(int signal)
{
    (void)signal;
    if (handled++ % 2 != 0)
        return;
    inside = 1;
    while (!sent)
        sched_yield();
    sent = 0;
}

static void *computes(void *unused)
{
    long between = 0;
    mask_signal(SIG_UNBLOCK, SIGUSR1);
    while (!over)
        between += handled % 2 != 0;
    check("signal_after_handler", between == 0, "%ld looks after the first of two", between);
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    mask_signal(SIG_BLOCK, SIGUSR1);
    pthread_t thread = start(computes, NULL);
    for (int round = 1; round <= ROUNDS; round++) {
        MUST(kill(getpid(), SIGUSR1));
        while (!inside)
            sched_yield();
        inside = 0;
        MUST(kill(getpid(), SIGUSR1));
        sent = 1;
        while (handled != 2 * round)
            sched_yield();
    }
    over = 1;
    join(thread);
    return verdict();
}
