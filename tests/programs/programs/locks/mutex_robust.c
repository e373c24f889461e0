/* A robust mutex whose owner thread ended: the next owner is told, and waiters too. */
#include "case.h"

static pthread_mutex_t mutex;

static void *ends_owning(void *unused)
{
    pthread_mutex_lock(&mutex);
    settle();
    return unused;
}

static void *waits(void *unused)
{
    (void)unused;
    long result = pthread_mutex_lock(&mutex);
    if (result == EOWNERDEAD)
        pthread_mutex_consistent(&mutex);
    pthread_mutex_unlock(&mutex);
    return (void *)result;
}

static void make(void)
{
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    MUST(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    MUST(pthread_mutex_init(&mutex, &attributes));
}

int main(void)
{
    make();
    join(start(ends_owning, NULL));
    int result = pthread_mutex_lock(&mutex);
    check("mutex_robust", result == EOWNERDEAD, "lock gave %d", result);
    check("mutex_consistent",
          pthread_mutex_consistent(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0 &&
              pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0,
          "the mutex is not usable again");

    join(start(ends_owning, NULL));
    result = pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
    int after = pthread_mutex_lock(&mutex);
    check("mutex_notrecoverable", result == EOWNERDEAD && after == ENOTRECOVERABLE, "%d, then %d",
          result, after);

    make();
    pthread_t owner = start(ends_owning, NULL), waiters[3];
    for (int i = 0; i < 3; i++)
        waiters[i] = start(waits, NULL);
    join(owner);
    long told = 0;
    for (int i = 0; i < 3; i++)
        told += (long)join(waiters[i]) == EOWNERDEAD;
    /* All three may have locked before the owner did. */
    check("mutex_robust_waiters", told <= 1, "%ld waiters were told", told);
    return verdict();
}
