/* Futexes by syscall(): wait and wake, a value that differs, a timeout, a bitset, and requeue. */
#include "case.h"
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>

static atomic_uint word, second;
static atomic_int woken;

static long futex(atomic_uint *at, int operation, unsigned value, void *fourth, void *fifth,
                  unsigned sixth)
{
    return syscall(SYS_futex, at, operation | FUTEX_PRIVATE_FLAG, value, fourth, fifth, sixth);
}

static void *waiter(void *unused)
{
    while (atomic_load(&word) == 0)
        futex(&word, FUTEX_WAIT, 0, NULL, NULL, 0);
    atomic_fetch_add(&woken, 1);
    return unused;
}

static void *requeued(void *bits)
{
    long result = futex(&word, FUTEX_WAIT_BITSET, 0, NULL, NULL, (unsigned)(long)bits);
    return (void *)result;
}

int main(void)
{
    pthread_t threads[10];
    for (int i = 0; i < 10; i++)
        threads[i] = start(waiter, NULL);
    settle();
    atomic_store(&word, 1);
    futex(&word, FUTEX_WAKE, 1000, NULL, NULL, 0);
    for (int i = 0; i < 10; i++)
        join(threads[i]);
    check("futex_wake", woken == 10, "%d of 10", woken);

    errno = 0;
    long result = futex(&word, FUTEX_WAIT, 5, NULL, NULL, 0);
    check("futex_differs", result == -1 && errno == EAGAIN, "%ld, errno %d", result, errno);

    struct timespec brief = {0, 20000000};
    long long before = now(CLOCK_MONOTONIC);
    errno = 0;
    result = futex(&word, FUTEX_WAIT, 1, &brief, NULL, 0);
    int error = errno;
    check("futex_timeout", result == -1 && error == ETIMEDOUT && now(CLOCK_MONOTONIC) - before >=
          20000000, "%ld, errno %d", result, error);

    /* Requeue ten waiters to the second word, and wake them there. The kernel lets one that is moved on its way to
     * sleep go back to the first word, to be moved again: only who was woken has been moved for good. */
    atomic_store(&word, 0);
    for (int i = 0; i < 10; i++)
        threads[i] = start(requeued, (void *)(long)FUTEX_BITSET_MATCH_ANY);
    long all = 0;
    while (all < 10) {
        futex(&word, FUTEX_CMP_REQUEUE, 0, (void *)1000L, &second, 0);
        all += futex(&second, FUTEX_WAKE, 1000, NULL, NULL, 0);
        sched_yield();
    }
    long none = futex(&word, FUTEX_WAKE, 1000, NULL, NULL, 0);
    long fine = 0;
    for (int i = 0; i < 10; i++)
        fine += (long)join(threads[i]) == 0;
    check("futex_requeue", none == 0 && all == 10 && fine == 10, "first %ld, second %ld, fine %ld",
          none, all, fine);

    threads[0] = start(requeued, (void *)2L);
    settle();
    long wrong_bits = futex(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 4);
    long right_bits = 0;
    while (right_bits == 0) {
        right_bits = futex(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 2);
        sched_yield();
    }
    join(threads[0]);
    check("futex_bitset", wrong_bits == 0 && right_bits == 1, "%ld, %ld", wrong_bits, right_bits);

    errno = 0;
    result = syscall(SYS_futex, (void *)8, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    check("futex_bad_address", result == -1 && errno == EFAULT, "%ld, errno %d", result, errno);
    return verdict();
}
