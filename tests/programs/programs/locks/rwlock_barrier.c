/* Read-write locks exclude, barriers gather, once runs once, spin locks count. */
#include "case.h"
#include <stdatomic.h>

#define THREADS 12
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_spinlock_t spin;
static atomic_int readers, writers, clashes, serial, initialised, early, phase;
static long counter;

static void initialise(void)
{
    sched_yield();
    atomic_fetch_add(&initialised, 1);
}

static void *body(void *number)
{
    long self = (long)number;
    pthread_once(&once, initialise);
    if (atomic_load(&initialised) != 1)
        atomic_fetch_add(&early, 1);
    for (int i = 0; i < 200; i++) {
        if ((i + self) % 5 == 0) {
            pthread_rwlock_wrlock(&lock);
            if (atomic_fetch_add(&writers, 1) != 0 || atomic_load(&readers) != 0)
                atomic_fetch_add(&clashes, 1);
            sched_yield();
            atomic_fetch_sub(&writers, 1);
        } else {
            pthread_rwlock_rdlock(&lock);
            atomic_fetch_add(&readers, 1);
            if (atomic_load(&writers) != 0)
                atomic_fetch_add(&clashes, 1);
            sched_yield();
            atomic_fetch_sub(&readers, 1);
        }
        pthread_rwlock_unlock(&lock);
        pthread_spin_lock(&spin);
        counter++;
        pthread_spin_unlock(&spin);
    }
    for (int i = 0; i < 50; i++) {
        atomic_fetch_add(&phase, 1);
        if (pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
            atomic_fetch_add(&serial, 1);
        if (atomic_load(&phase) < (i + 1) * THREADS)
            atomic_fetch_add(&early, 1);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(void)
{
    MUST(pthread_barrier_init(&barrier, NULL, THREADS));
    MUST(pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(body, (void *)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("rwlock", clashes == 0, "%d clashes", clashes);
    check("once", initialised == 1, "%d times", initialised);
    check("spinlock", counter == 200 * THREADS, "%ld", counter);
    check("barrier", serial == 50 && early == 0, "%d serial threads, %d early", serial, early);
    return verdict();
}
