/* The kernel refuses every timer (RLIMIT_SIGPENDING 0), so time slices have none: threads that never make a system call
 * take turns all the same. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>

#define THREADS 3

static atomic_int turn;

static void *spins(void *number)
{
    for (int i = 0; i < 5; i++) {
        while (atomic_load(&turn) % THREADS != (int)(long)number) {
        }
        atomic_fetch_add(&turn, 1);
    }
    return NULL;
}

int main(void)
{
    struct rlimit none;
    MUST(getrlimit(RLIMIT_SIGPENDING, &none));
    none.rlim_cur = 0;
    MUST(setrlimit(RLIMIT_SIGPENDING, &none));
    timer_t timer;
    check("timer_create", timer_create(CLOCK_MONOTONIC, NULL, &timer) == -1 && errno == EAGAIN, "errno %d", errno);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) {
        threads[i] = start(spins, (void *)i);
    }
    for (int i = 0; i < THREADS; i++) {
        join(threads[i]);
    }
    check("turns", atomic_load(&turn) == 5 * THREADS, "%d", atomic_load(&turn));
    return verdict();
}
