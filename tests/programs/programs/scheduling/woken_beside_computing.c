/* A thread that a computing thread wakes runs before other computing threads have had whole turns: what waits most of
 * the time, as a profiler does between its samples, is not kept waiting by what computes. Measured by the processor time that
 * the process uses between the wake-up and the moment when the woken thread runs; another process's time does not count. */
#include "case.h"
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

enum { COMPUTING = 5, WAKES = 100, SOON = 5000000 };

static sem_t asked;
static atomic_long woken_at;
static atomic_int over;

static long used(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *computes(void *unused)
{
    while (!over) {
    }
    return unused;
}

static void *wakes(void *unused)
{
    (void)unused;
    long soon = 0;
    for (int i = 0; i < WAKES; i++) {
        long until = used(CLOCK_THREAD_CPUTIME_ID) + 2000000;
        while (used(CLOCK_THREAD_CPUTIME_ID) < until) {
        }
        woken_at = 0;
        long before = used(CLOCK_PROCESS_CPUTIME_ID);
        MUST(sem_post(&asked));
        while (woken_at == 0) {
        }
        soon += woken_at - before < SOON;
    }
    over = 1;
    MUST(sem_post(&asked));
    return (void *)soon;
}

int main(void)
{
    pthread_t others[COMPUTING];
    MUST(sem_init(&asked, 0, 0));
    for (int i = 0; i < COMPUTING; i++) {
        others[i] = start(computes, NULL);
    }
    pthread_t waker = start(wakes, NULL);
    while (!over) {
        if (sem_wait(&asked) == 0) {
            woken_at = used(CLOCK_PROCESS_CPUTIME_ID);
        }
    }
    long soon = (long)join(waker);
    for (int i = 0; i < COMPUTING; i++) {
        join(others[i]);
    }
    check("runs_soon", soon >= WAKES / 2, "%ld of %d", soon, WAKES);
    return verdict();
}
