/* A thread cancelled in pthread_cond_wait owns the mutex again in its cleanup handler. */
#include "case.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static int waiting, cleaned, owned;

static void cleanup(void *unused)
{
    (void)unused;
    cleaned++;
    owned = pthread_mutex_trylock(&mutex) == EBUSY;
    pthread_mutex_unlock(&mutex);
}

static void *waiter(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&mutex);
    pthread_cleanup_push(cleanup, NULL);
    waiting = 1;
    pthread_cond_signal(&arrived);
    for (;;)
        pthread_cond_wait(&never, &mutex);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    for (int round = 0; round < 20; round++) {
        waiting = 0;
        pthread_t thread = start(waiter, NULL);
        pthread_mutex_lock(&mutex);
        while (!waiting)
            pthread_cond_wait(&arrived, &mutex);
        pthread_mutex_unlock(&mutex);
        pthread_cancel(thread);
        void *result = join(thread);
        if (result != PTHREAD_CANCELED)
            check("cancel_cond_wait_result", 0, "round %d: joined %p", round, result);
        if (!owned)
            check("cancel_cond_wait_owner", 0, "round %d: the handler ran without the mutex", round);
    }
    check("cancel_cond_wait", cleaned == 20 && pthread_mutex_trylock(&mutex) == 0,
          "%d of 20 handlers ran", cleaned);
    return verdict();
}
