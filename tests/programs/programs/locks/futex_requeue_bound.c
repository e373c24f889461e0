/* Threads that wait at a word, some of them with a nice value of their own, are moved to another word, or to a mutex
 * that inherits priorities, by a thread with or without one. Each is woken once, and owns the mutex then. */
#include "case.h"
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { WAITERS = 4, ROUNDS = 20 };

static atomic_int word, mutex, came, wrong;

static long futex(atomic_int *address, int operation, long value, long second, atomic_int *other, int third)
{
    return syscall(SYS_futex, address, operation | FUTEX_PRIVATE_FLAG, value, second, other, third);
}

static void unlock(void)
{
    int own = (int)syscall(SYS_gettid);
    if (!atomic_compare_exchange_strong(&mutex, &own, 0) && futex(&mutex, FUTEX_UNLOCK_PI, 0, 0, NULL, 0) != 0)
        atomic_fetch_add(&wrong, 1);
}

static void bind_odd(long number)
{
    if (number % 2 != 0)
        MUST(setpriority(PRIO_PROCESS, 0, 2));
}

static void *waits_for_mutex(void *number)
{
    bind_odd((long)number);
    atomic_fetch_add(&came, 1);
    if (futex(&word, FUTEX_WAIT_REQUEUE_PI, 0, 0, &mutex, 0) != 0 ||
        (atomic_load(&mutex) & FUTEX_TID_MASK) != syscall(SYS_gettid))
        atomic_fetch_add(&wrong, 1);
    unlock();
    return NULL;
}

static void *waits(void *number)
{
    bind_odd((long)number);
    atomic_fetch_add(&came, 1);
    if (futex(&word, FUTEX_WAIT, 0, 0, NULL, 0) != 0)
        atomic_fetch_add(&wrong, 1);
    return NULL;
}

/* All have begun, and most have come to their wait. One that comes later than the first attempt meets the next, and so
 * does one that the kernel moves on its way to sleep and lets go back to its first word. */
static void let_come(void)
{
    while (atomic_load(&came) < WAITERS)
        sched_yield();
    settle();
}

static void *moves(void *operation)
{
    let_come();
    for (int left = WAITERS; left > 0; sched_yield()) {
        long moved = futex(&word, (int)(long)operation, 1, WAITERS, &mutex, 0);
        if (moved < 0) {
            atomic_fetch_add(&wrong, 1);
            break;
        }
        /* A mutex is handed on. Elsewhere the first was woken, and the others are here. */
        if ((long)operation == FUTEX_CMP_REQUEUE)
            moved = (moved > 0) + futex(&mutex, FUTEX_WAKE, WAITERS, 0, NULL, 0);
        left -= (int)moved;
    }
    return NULL;
}

static void *moves_bound(void *operation)
{
    bind_odd(1);
    return moves(operation);
}

/* The waiters are made by a thread that has nothing of its own. */
static void rounds(void *(*waiter)(void *), void *(*mover)(void *), long operation)
{
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[WAITERS];
        atomic_store(&came, 0);
        for (long i = 0; i < WAITERS; i++)
            threads[i] = start(waiter, (void *)i);
        join(start(mover, (void *)operation));
        for (int i = 0; i < WAITERS; i++)
            join(threads[i]);
    }
}

int main(void)
{
    rounds(waits, moves, FUTEX_CMP_REQUEUE);
    check("to_a_word", wrong == 0, "%d wrong", wrong);
    rounds(waits, moves_bound, FUTEX_CMP_REQUEUE);
    check("to_a_word_by_a_bound_one", wrong == 0, "%d wrong", wrong);
    rounds(waits_for_mutex, moves, FUTEX_CMP_REQUEUE_PI);
    check("to_a_mutex", wrong == 0, "%d wrong", wrong);
    rounds(waits_for_mutex, moves_bound, FUTEX_CMP_REQUEUE_PI);
    check("to_a_mutex_by_a_bound_one", wrong == 0, "%d wrong", wrong);
    return verdict();
}
