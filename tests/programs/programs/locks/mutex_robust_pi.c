/* Robust mutexes with priority inheritance inside one process: libc treats every robust one as shared. */
#include "case.h"
#include <sched.h>
#include <sys/resource.h>

enum { ROUNDS = 3000, THREADS = 4 };

static pthread_mutex_t mutex;
static long count;

static void make(int robust)
{
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    if (robust)
        MUST(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    MUST(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    MUST(pthread_mutex_init(&mutex, &attributes));
}

static void *counts(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        MUST(pthread_mutex_lock(&mutex));
        count++;
        if (i % 64 == 0)
            sched_yield();
        MUST(pthread_mutex_unlock(&mutex));
    }
    return unused;
}

/* A thread that has a nice value of its own. */
static void *counts_bound(void *unused)
{
    MUST(setpriority(PRIO_PROCESS, 0, 3));
    return counts(unused);
}

static volatile int owned;

static void *ends_owning(void *unused)
{
    MUST(pthread_mutex_lock(&mutex));
    owned = 1;
    settle();
    return unused;
}

static void *is_cancelled_owning(void *unused)
{
    MUST(pthread_mutex_lock(&mutex));
    owned = 1;
    for (;;)
        pause();
    return unused;
}

static void await_owned(void)
{
    while (!owned)
        sched_yield();
    owned = 0;
}

static void told(const char *name, int result)
{
    check(name, result == EOWNERDEAD, "lock gave %d", result);
    if (result == EOWNERDEAD) {
        MUST(pthread_mutex_consistent(&mutex));
        MUST(pthread_mutex_unlock(&mutex));
    }
}

int main(void)
{
    for (int robust = 0; robust < 2; robust++) {
        make(robust);
        count = 0;
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(i == 0 ? counts_bound : counts, NULL);
        counts(NULL);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        check(robust ? "robust_pi_counts" : "pi_counts", count == (THREADS + 1) * ROUNDS, "%ld", count);
    }

    make(1);
    pthread_t owner = start(ends_owning, NULL);
    await_owned();
    told("owner_ends_while_one_waits", pthread_mutex_lock(&mutex));
    join(owner);

    owner = start(ends_owning, NULL);
    await_owned();
    join(owner);
    told("owner_has_ended", pthread_mutex_lock(&mutex));

    owner = start(ends_owning, NULL);
    await_owned();
    struct timespec until = ahead(CLOCK_REALTIME, 20000000000);
    told("owner_ends_while_one_waits_for_a_time", pthread_mutex_timedlock(&mutex, &until));
    join(owner);

    owner = start(is_cancelled_owning, NULL);
    await_owned();
    until = ahead(CLOCK_REALTIME, 30000000);
    int result = pthread_mutex_timedlock(&mutex, &until);
    check("time_is_over", result == ETIMEDOUT, "%d", result);
    result = pthread_mutex_trylock(&mutex);
    check("trylock_is_busy", result == EBUSY, "%d", result);
    pthread_cancel(owner);
    told("owner_is_cancelled", pthread_mutex_lock(&mutex));
    join(owner);
    return verdict();
}
