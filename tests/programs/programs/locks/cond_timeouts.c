/* Condition variables: timeouts on both clocks are kept and not early, a signal wakes one, a
 * broadcast all. */
#include "case.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int tokens, waiting, woken;

static void *waiter(void *unused)
{
    pthread_mutex_lock(&mutex);
    waiting++;
    while (tokens == 0)
        pthread_cond_wait(&condition, &mutex);
    tokens--;
    woken++;
    pthread_mutex_unlock(&mutex);
    return unused;
}

static void timeout(const char *name, clockid_t clock)
{
    pthread_condattr_t attributes;
    pthread_cond_t never;
    MUST(pthread_condattr_init(&attributes));
    MUST(pthread_condattr_setclock(&attributes, clock));
    MUST(pthread_cond_init(&never, &attributes));
    struct timespec end = ahead(clock, 30000000);
    pthread_mutex_lock(&mutex);
    int result = 0;
    while (result == 0)
        result = pthread_cond_timedwait(&never, &mutex, &end);
    long long late = now(clock) - (end.tv_sec * 1000000000LL + end.tv_nsec);
    pthread_mutex_unlock(&mutex);
    check(name, result == ETIMEDOUT && late >= 0, "result %d, %lld ns too early", result, -late);
}

static void *timeouts(void *unused)
{
    timeout("cond_timeout_realtime", CLOCK_REALTIME);
    timeout("cond_timeout_monotonic", CLOCK_MONOTONIC);
    return unused;
}

int main(void)
{
    join(start(timeouts, NULL));
    struct timespec past = {1, 0};
    pthread_mutex_lock(&mutex);
    int result = pthread_cond_timedwait(&condition, &mutex, &past);
    pthread_mutex_unlock(&mutex);
    check("cond_timeout_past", result == ETIMEDOUT, "%d", result);

    pthread_t threads[40];
    for (int i = 0; i < 40; i++)
        threads[i] = start(waiter, NULL);
    for (int given = 0; given < 20; given++) {
        pthread_mutex_lock(&mutex);
        tokens++;
        pthread_cond_signal(&condition);
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    tokens += 20;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < 40; i++)
        join(threads[i]);
    check("cond_signal_broadcast", woken == 40 && tokens == 0, "%d woken, %d tokens left", woken,
          tokens);
    return verdict();
}
