/* Error-checking, recursive and timed mutexes. */
#include "case.h"

static pthread_mutex_t mutex;

static void *unlock(void *unused)
{
    (void)unused;
    return (void *)(long)pthread_mutex_unlock(&mutex);
}

static void *try_lock(void *unused)
{
    (void)unused;
    long result = pthread_mutex_trylock(&mutex);
    if (result == 0)
        pthread_mutex_unlock(&mutex);
    return (void *)result;
}

static void *timed_lock(void *clock)
{
    clockid_t id = (clockid_t)(long)clock;
    long long before = now(id);
    struct timespec end = ahead(id, 20000000);
    long result = id == CLOCK_REALTIME ? pthread_mutex_timedlock(&mutex, &end)
                                       : pthread_mutex_clocklock(&mutex, id, &end);
    return (void *)(result == ETIMEDOUT && now(id) - before < 20000000 ? -1L : result);
}

static void make(int type)
{
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    MUST(pthread_mutexattr_settype(&attributes, type));
    MUST(pthread_mutex_init(&mutex, &attributes));
}

int main(void)
{
    make(PTHREAD_MUTEX_ERRORCHECK);
    MUST(pthread_mutex_lock(&mutex));
    int twice = pthread_mutex_lock(&mutex);
    long foreign = (long)join(start(unlock, NULL));
    check("mutex_errorcheck", twice == EDEADLK && foreign == EPERM, "twice %d, foreign unlock %ld",
          twice, foreign);
    MUST(pthread_mutex_unlock(&mutex));

    make(PTHREAD_MUTEX_RECURSIVE);
    MUST(pthread_mutex_lock(&mutex));
    MUST(pthread_mutex_lock(&mutex));
    long busy = (long)join(start(try_lock, NULL));
    MUST(pthread_mutex_unlock(&mutex));
    long still = (long)join(start(try_lock, NULL));
    MUST(pthread_mutex_unlock(&mutex));
    long open = (long)join(start(try_lock, NULL));
    check("mutex_recursive", busy == EBUSY && still == EBUSY && open == 0, "%ld, %ld, %ld", busy,
          still, open);

    make(PTHREAD_MUTEX_NORMAL);
    MUST(pthread_mutex_lock(&mutex));
    long real = (long)join(start(timed_lock, (void *)(long)CLOCK_REALTIME));
    long monotonic = (long)join(start(timed_lock, (void *)(long)CLOCK_MONOTONIC));
    check("mutex_timed", real == ETIMEDOUT && monotonic == ETIMEDOUT,
          "%ld, %ld (-1: gave up too early)", real, monotonic);
    return verdict();
}
