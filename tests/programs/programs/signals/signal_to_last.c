/* A thread that accepts what was sent to the process handles it before it ends, if nobody else accepts it. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>

enum { ROUNDS = 500, THREADS = 3, SENT = 5 };

static pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t begun;
static atomic_int handled;

static void handler(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static void *accepts(void *unused)
{
    mask_signal(SIG_UNBLOCK, SIGRTMIN);
    pthread_barrier_wait(&begun);
    MUST(pthread_mutex_lock(&hold));
    MUST(pthread_mutex_unlock(&hold));
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGRTMIN, &action, NULL));
    sigset_t all;
    sigfillset(&all);
    MUST(pthread_sigmask(SIG_SETMASK, &all, NULL));
    MUST(pthread_barrier_init(&begun, NULL, THREADS + 1));
    int short_of = 0;
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(&handled, 0);
        pthread_t threads[THREADS];
        MUST(pthread_mutex_lock(&hold));
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(accepts, NULL);
        pthread_barrier_wait(&begun);
        for (int i = 0; i < SENT; i++)
            MUST(kill(getpid(), SIGRTMIN));
        MUST(pthread_mutex_unlock(&hold));
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        short_of += atomic_load(&handled) != SENT;
    }
    check("all_handled", short_of == 0, "in %d of %d rounds not all %d signals were handled", short_of, ROUNDS, SENT);
    return verdict();
}
