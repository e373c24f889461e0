/* pthread_exit from deep inside: cleanup handlers, specific data's destructors in rounds, and the
 * result; tryjoin and timedjoin; a join of oneself. */
#include "case.h"
#include <semaphore.h>

static pthread_key_t key;
static int cleaned, destroyed;
static sem_t release;

static void destroy(void *left)
{
    destroyed++;
    if ((long)left > 1)
        pthread_setspecific(key, (void *)((long)left - 1));
}

static void cleanup(void *amount) { cleaned += (int)(long)amount; }

__attribute__((noinline)) static void leave(int depth)
{
    if (depth == 0)
        pthread_exit((void *)77);
    pthread_cleanup_push(cleanup, (void *)1);
    if (depth > 0)
        leave(depth - 1);
    pthread_cleanup_pop(0);
}

static void *body(void *unused)
{
    pthread_setspecific(key, (void *)3);
    leave(5);
    return unused;
}

static void *waits(void *unused)
{
    sem_wait(&release);
    return unused;
}

int main(void)
{
    MUST(pthread_key_create(&key, destroy));
    MUST(sem_init(&release, 0, 0));
    void *result = join(start(body, NULL));
    check("pthread_exit", result == (void *)77 && cleaned == 5, "%p, %d handlers", result, cleaned);
    check("key_destructor_rounds", destroyed == 3, "%d", destroyed);

    pthread_t thread = start(waits, (void *)9);
    int busy = pthread_tryjoin_np(thread, &result);
    struct timespec end = ahead(CLOCK_REALTIME, 20000000);
    int timed = pthread_timedjoin_np(thread, &result, &end);
    sem_post(&release);
    result = join(thread);
    check("tryjoin_timedjoin", busy == EBUSY && timed == ETIMEDOUT && result == (void *)9,
          "%d, %d, %p", busy, timed, result);
    int self = pthread_join(pthread_self(), NULL);
    check("join_self", self == EDEADLK, "%d", self);
    return verdict();
}
