/* Priority-inheritance mutexes count correctly under contention, also with timeouts. */
#include "case.h"

static pthread_mutex_t mutex;
static long counter;

static void *body(void *unused)
{
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_lock(&mutex);
        long seen = counter;
        if (i % 100 == 0)
            sched_yield();
        counter = seen + 1;
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

static void *impatient(void *unused)
{
    (void)unused;
    struct timespec end = ahead(CLOCK_REALTIME, 20000000);
    return (void *)(long)pthread_mutex_timedlock(&mutex, &end);
}

int main(void)
{
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    MUST(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    MUST(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK));
    MUST(pthread_mutex_init(&mutex, &attributes));
    pthread_t threads[10];
    for (int i = 0; i < 10; i++)
        threads[i] = start(body, NULL);
    for (int i = 0; i < 10; i++)
        join(threads[i]);
    check("mutex_pi", counter == 10000, "counted %ld of 10000", counter);

    pthread_mutex_lock(&mutex);
    int again = pthread_mutex_lock(&mutex);
    check("mutex_pi_errorcheck", again == EDEADLK, "locking twice gave %d", again);
    long timed = (long)join(start(impatient, NULL));
    check("mutex_pi_timed", timed == ETIMEDOUT, "timed lock gave %ld", timed);
    pthread_mutex_unlock(&mutex);
    return verdict();
}
