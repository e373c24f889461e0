/* Three thousand threads parked at once, woken by one broadcast, joined in reverse; then detached
 * ones, and ones on stacks of the caller's. */
#include "case.h"
#include <limits.h>
#include <semaphore.h>
#include <sys/mman.h>

#define THREADS 3000
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate = PTHREAD_COND_INITIALIZER, full = PTHREAD_COND_INITIALIZER;
static int parked, open;
static sem_t done;

static void *body(void *number)
{
    pthread_mutex_lock(&mutex);
    if (++parked == THREADS)
        pthread_cond_signal(&full);
    while (!open)
        pthread_cond_wait(&gate, &mutex);
    pthread_mutex_unlock(&mutex);
    return number;
}

static void *detached(void *unused)
{
    sem_post(&done);
    return unused;
}

static void *on_own_stack(void *stack)
{
    char here;
    return (void *)(long)(&here > (char *)stack && &here < (char *)stack + 65536);
}

int main(void)
{
    static pthread_t threads[THREADS];
    pthread_attr_t attributes;
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstacksize(&attributes, 64 << 10));
    for (long i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], &attributes, body, (void *)i));
    pthread_mutex_lock(&mutex);
    while (parked < THREADS)
        pthread_cond_wait(&full, &mutex);
    open = 1;
    pthread_cond_broadcast(&gate);
    pthread_mutex_unlock(&mutex);
    long wrong = 0;
    for (long i = THREADS - 1; i >= 0; i--)
        wrong += (long)join(threads[i]) != i;
    check("many_threads", wrong == 0, "%ld wrong results", wrong);

    MUST(sem_init(&done, 0, 0));
    MUST(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED));
    pthread_t ignored;
    for (int i = 0; i < 500; i++)
        MUST(pthread_create(&ignored, &attributes, detached, NULL));
    for (int i = 0; i < 500; i++)
        sem_wait(&done);
    check("detached_threads", 1, "unreachable");

    MUST(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_JOINABLE));
    long inside = 0;
    for (int i = 0; i < 20; i++) {
        void *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(pthread_attr_setstack(&attributes, stack, 65536));
        MUST(pthread_create(&ignored, &attributes, on_own_stack, stack));
        inside += (long)join(ignored);
        MUST(munmap(stack, 65536));
    }
    check("own_stacks", inside == 20, "%ld of 20", inside);
    return verdict();
}
