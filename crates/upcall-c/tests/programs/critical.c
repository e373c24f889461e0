/* Critical sections: a lock whose waiters spin, sections inside of each other, ends of threads, fork. */
#include "check.h"

#include <sys/wait.h>

enum { THREADS = 6, ROUNDS = 20000 };

static _Atomic int held;
static long count;

static void *counts(void *argument)
{
    for (int i = 0; i < ROUNDS; i++) {
        upcall_critical_enter();
        while (__atomic_exchange_n(&held, 1, __ATOMIC_ACQUIRE))
            ;
        upcall_critical_enter();
        count++;
        upcall_critical_leave();
        __atomic_store_n(&held, 0, __ATOMIC_RELEASE);
        upcall_critical_leave();
    }
    return argument;
}

/* It never leaves, and others run all the same. */
static _Atomic int over;

static void *stays(void *argument)
{
    upcall_critical_enter();
    while (!over)
        ;
    return argument;
}

/* A lock that is a critical section by where it is. */
extern const char __start_upcall_critical[], __stop_upcall_critical[];

UPCALL_CRITICAL_CODE static void adds_one(void)
{
    while (__atomic_exchange_n(&held, 1, __ATOMIC_ACQUIRE))
        ;
    count++;
    __atomic_store_n(&held, 0, __ATOMIC_RELEASE);
}

static void *adds(void *argument)
{
    for (int i = 0; i < ROUNDS; i++)
        adds_one();
    return argument;
}

static void counts_in_code(void)
{
    const char *begin = __start_upcall_critical;
    CHECK(upcall_critical_code(begin, begin) == EINVAL);
    CHECK(upcall_critical_code(begin, NULL) == EINVAL);
    for (int i = 0; i < 2; i++)
        OK(upcall_critical_code(begin, __stop_upcall_critical));
    upcall_thread_t threads[THREADS];
    count = 0;
    for (int i = 0; i < THREADS; i++)
        OK(upcall_thread_create(&threads[i], NULL, adds, NULL));
    for (int i = 0; i < THREADS; i++)
        OK(upcall_thread_join(threads[i], NULL));
    CHECK(count == (long)THREADS * ROUNDS);
    count = 0;
    for (int i = 0; i < 15; i++)
        OK(upcall_critical_code(begin + i, begin + i + 1));
    CHECK(upcall_critical_code(begin + 15, begin + 16) == ENOSPC);
}

int main(void)
{
    start_as_told();
    counts_in_code();
    /* More than were entered. */
    upcall_critical_leave();
    upcall_thread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        OK(upcall_thread_create(&threads[i], NULL, counts, NULL));
    for (int i = 0; i < THREADS; i++)
        OK(upcall_thread_join(threads[i], NULL));
    CHECK(count == (long)THREADS * ROUNDS);
    for (int i = 0; i < 4; i++)
        OK(upcall_thread_create(&threads[i], NULL, stays, NULL));
    upcall_thread_sleep(MS);
    over = 1;
    for (int i = 0; i < 4; i++)
        OK(upcall_thread_join(threads[i], NULL));
    upcall_critical_enter();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(100);
        upcall_critical_leave();
        OK(upcall_thread_create(&threads[0], NULL, counts, NULL));
        OK(upcall_thread_join(threads[0], NULL));
        upcall_critical_leave();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    upcall_critical_leave();
    puts("ok");
}
