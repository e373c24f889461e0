/* C11's <threads.h>: threads, mutexes, conditions, thread-specific storage, call_once, sleep. */
#include "case.h"
#include <threads.h>

static mtx_t mutex;
static cnd_t condition;
static tss_t key;
static once_flag once = ONCE_FLAG_INIT;
static int ready, once_runs, destroyed, sum;

static void run_once(void) { once_runs++; }
static void destroy(void *unused)
{
    (void)unused;
    mtx_lock(&mutex);
    destroyed++;
    mtx_unlock(&mutex);
}

static int body(void *number)
{
    call_once(&once, run_once);
    tss_set(key, number);
    thrd_yield();
    thrd_sleep(&(struct timespec){0, 1000000}, NULL);
    mtx_lock(&mutex);
    while (!ready)
        cnd_wait(&condition, &mutex);
    sum += (int)(long)tss_get(key);
    mtx_unlock(&mutex);
    return (int)(long)number * 2;
}

int main(void)
{
    MUST(mtx_init(&mutex, mtx_timed) != thrd_success);
    MUST(cnd_init(&condition) != thrd_success);
    MUST(tss_create(&key, destroy) != thrd_success);
    thrd_t threads[10];
    int results = 0, result;
    for (long i = 0; i < 10; i++)
        MUST(thrd_create(&threads[i], body, (void *)(i + 1)) != thrd_success);
    mtx_lock(&mutex);
    ready = 1;
    cnd_broadcast(&condition);
    mtx_unlock(&mutex);
    for (int i = 0; i < 10; i++) {
        thrd_join(threads[i], &result);
        results += result;
    }
    check("c11_threads", sum == 55 && results == 110 && once_runs == 1 && destroyed == 10,
          "sum %d, results %d, once %d, destroyed %d", sum, results, once_runs, destroyed);
    struct timespec end = ahead(CLOCK_REALTIME, 10000000);
    mtx_lock(&mutex);
    result = cnd_timedwait(&condition, &mutex, &end);
    mtx_unlock(&mutex);
    check("c11_timed", result == thrd_timedout, "%d", result);
    return verdict();
}
