/* A signal to the process reaches only a thread that does not block it; one that all block stays
 * pending; one to a thread stays pending for that thread. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>

static atomic_int handled, wrong, ready, stop;
static _Thread_local int open_for;

static void handler(int signal)
{
    if (open_for != signal)
        atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&handled, 1);
}

static void *body(void *argument)
{
    int mine = (int)(long)argument;
    if (mine != 0) {
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, mine);
        open_for = mine;
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    }
    atomic_fetch_add(&ready, 1);
    while (!atomic_load(&stop))
        usleep(500);
    return NULL;
}

static void handled_is(int count)
{
    while (atomic_load(&handled) < count)
        sched_yield();
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    sigset_t set, pending;
    sigemptyset(&set);
    for (int i = 0; i < 4; i++) {
        MUST(sigaction(SIGRTMIN + i, &action, NULL));
        sigaddset(&set, SIGRTMIN + i);
    }
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    pthread_t threads[6];
    for (long i = 0; i < 6; i++)
        threads[i] = start(body, (void *)(i < 3 ? (long)SIGRTMIN + i : 0));
    while (atomic_load(&ready) < 6)
        sched_yield();
    for (int i = 0; i < 60; i++) {
        kill(getpid(), SIGRTMIN + i % 3);
        handled_is(i + 1);
    }
    check("signal_to_open_thread", wrong == 0, "%d of %d on a thread that blocks it", wrong, handled);

    kill(getpid(), SIGRTMIN + 3);
    settle();
    sigpending(&pending);
    check("signal_pending", handled == 60 && sigismember(&pending, SIGRTMIN + 3) == 1,
          "%d handled, pending %d", handled, sigismember(&pending, SIGRTMIN + 3));
    open_for = SIGRTMIN + 3;
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    check("signal_after_unblock", handled == 61 && wrong == 0, "%d handled", handled);
    atomic_store(&stop, 1);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    return verdict();
}
