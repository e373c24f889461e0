/* Under `--policy=priority`, on one virtual processor: who waits for a mutex with PTHREAD_PRIO_INHERIT lends its
 * priority to the holder, and to the one that this one waits for. Otherwise the one in the middle, which computes until
 * the most urgent one is done, would do so for ever. */
#include "case.h"
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

static pthread_mutex_t first, second;
static sem_t holds, go;
static atomic_int done, after;

static void urgent(int priority)
{
    struct sched_param parameters = {priority};
    MUST(sched_setscheduler(0, SCHED_RR, &parameters));
}

static void *lowest(void *unused)
{
    (void)unused;
    urgent(1);
    pthread_mutex_lock(&first);
    sem_post(&holds);
    sem_wait(&go);
    pthread_mutex_unlock(&first);
    /* What was lent is given back: the one in the middle comes before this. */
    atomic_fetch_add(&after, 1);
    return NULL;
}

static void *low(void *chain)
{
    urgent(2);
    if (chain != NULL) {
        pthread_mutex_lock(&second);
        sem_post(&holds);
    }
    pthread_mutex_lock(&first);
    pthread_mutex_unlock(&first);
    if (chain != NULL)
        pthread_mutex_unlock(&second);
    atomic_fetch_add(&after, 1);
    return NULL;
}

static void *middle(void *unused)
{
    (void)unused;
    urgent(3);
    while (atomic_load(&done) == 0) {
    }
    return (void *)(long)atomic_load(&after);
}

static void *high(void *mutex)
{
    urgent(4);
    pthread_mutex_lock(mutex);
    pthread_mutex_unlock(mutex);
    atomic_store(&done, 1);
    return NULL;
}

/* The least urgent holds a mutex. Another one waits for it, and, in a chain, holds a second one for which the most urgent
 * waits; else that waits for the first one too, as the second in line. */
static void inherits(const char *name, int chain)
{
    atomic_store(&done, 0);
    atomic_store(&after, 0);
    pthread_t one = start(lowest, NULL);
    MUST(sem_wait(&holds));
    pthread_t two = start(low, chain ? &second : NULL);
    if (chain)
        MUST(sem_wait(&holds));
    settle();
    pthread_t four = start(high, chain ? &second : &first);
    settle();
    pthread_t three = start(middle, NULL);
    settle();
    MUST(sem_post(&go));
    join(four);
    long early = (long)join(three);
    join(two);
    join(one);
    check(name, early == 0, "%ld went on before the one in the middle", early);
}

int main(void)
{
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    MUST(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    MUST(pthread_mutex_init(&first, &attributes));
    MUST(pthread_mutex_init(&second, &attributes));
    MUST(sem_init(&holds, 0, 0));
    MUST(sem_init(&go, 0, 0));
    urgent(50);
    for (int i = 0; i < 3; i++) {
        inherits("the_holder_inherits", 0);
        inherits("the_holder_of_the_holder_inherits", 1);
    }
    return verdict();
}
