/* The counts of futex(2) at their edges: fewer than one to wake, and waiters that are moved to where they are. */
#include "case.h"
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>

#define WAITERS 3

static atomic_uint word;
static pthread_t threads[WAITERS];

static long futex(atomic_uint *at, int operation, int first, long second, atomic_uint *other,
                  unsigned last)
{
    return syscall(SYS_futex, at, operation | FUTEX_PRIVATE_FLAG, first, second, other, last);
}

static void *waiter(void *unused)
{
    (void)unused;
    return (void *)futex(&word, FUTEX_WAIT, 0, 0, NULL, 0);
}

/* All wait for `word`: a requeue to where they are says how many there are, and moves nobody. One that is moved
 * elsewhere on its way to sleep may go back to its first word, and be counted again. */
static void let_them_wait(void)
{
    for (int i = 0; i < WAITERS; i++)
        threads[i] = start(waiter, NULL);
    while (futex(&word, FUTEX_CMP_REQUEUE, 0, WAITERS, &word, 0) != WAITERS)
        sched_yield();
}

/* The call has answered so, and so many of them still waited afterwards. */
static void check_counts(const char *name, long answer, long expected, long expected_left)
{
    long left = futex(&word, FUTEX_WAKE, INT_MAX, 0, NULL, 0);
    for (int i = 0; i < WAITERS; i++)
        join(threads[i]);
    check(name, answer == expected && left == expected_left, "answer %ld, %ld left", answer, left);
}

static void check_wake(const char *name, int operation, int count)
{
    let_them_wait();
    check_counts(name, futex(&word, operation, count, 0, NULL, 1), 1, WAITERS - 1);
}

static void check_requeue(const char *name, int wake, long move, long expected)
{
    let_them_wait();
    long answer = futex(&word, FUTEX_CMP_REQUEUE, wake, move, &word, 0);
    check_counts(name, answer, expected, WAITERS - wake);
}

static void check_wake_op(const char *name, int first, long second, int compared, long expected)
{
    let_them_wait();
    int change = FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, compared);
    long answer = futex(&word, FUTEX_WAKE_OP, first, second, &word, (unsigned)change);
    check_counts(name, answer, expected, WAITERS - expected);
}

int main(void)
{
    check_wake("wake_none", FUTEX_WAKE, 0);
    check_wake("wake_fewer_than_none", FUTEX_WAKE, -1);
    check_wake("wake_fewest", FUTEX_WAKE, INT_MIN);
    check_wake("wake_none_of_a_set", FUTEX_WAKE_BITSET, 0);
    check_wake("wake_fewer_than_none_of_a_set", FUTEX_WAKE_BITSET, -1);
    check_requeue("requeue_to_itself", 1, INT_MAX, WAITERS);
    check_requeue("requeue_one_to_itself", 0, 1, 1);
    check_wake_op("wake_op_none", 0, 0, 0, 2);
    check_wake_op("wake_op_none_if_not", 0, 0, 1, 1);
    check_wake_op("wake_op_fewer_than_none", -1, -1, 0, 2);
    return verdict();
}
