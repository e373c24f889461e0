/* pthread_kill of a thread that computes: the handler runs on that thread, soon, and the thread
 * goes on where it was. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>

static atomic_int handled, strangers, running[4];
static _Thread_local int mine;
static atomic_long turns[4];

static void handler(int signal)
{
    (void)signal;
    if (mine == 0)
        atomic_fetch_add(&strangers, 1);
    mine = 2;
    atomic_fetch_add(&handled, 1);
}

static void *spinner(void *number)
{
    long self = (long)number;
    mine = 1;
    atomic_store(&running[self], 1);
    while (*(volatile int *)&mine != 2)
        atomic_fetch_add(&turns[self], 1);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        threads[i] = start(spinner, (void *)i);
    for (int i = 0; i < 4; i++) {
        while (!atomic_load(&running[i]))
            sched_yield();
        pthread_kill(threads[i], SIGUSR1);
    }
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    check("kill_running", handled == 4 && strangers == 0, "%d handled, %d on strangers", handled,
          strangers);
    return verdict();
}
