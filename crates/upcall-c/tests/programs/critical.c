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

int main(void)
{
    start_as_told();
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
