/* A process that cannot be served (-static, a sanitizer, valgrind) is told so, and its threads work all the same. */
#include "check.h"

enum { THREADS = 20 };

static upcall_mutex_t mutex = UPCALL_MUTEX_INITIALIZER;
/* Atomic for ThreadSanitizer, which does not know locks that are not its own. */
static _Atomic long count;

static void *counts(void *argument)
{
    for (int i = 0; i < 100; i++) {
        OK(upcall_mutex_lock(&mutex));
        count++;
        OK(upcall_mutex_unlock(&mutex));
        upcall_thread_yield();
    }
    return argument;
}

int main(void)
{
    alarm(100);
    ANSWERS(ENOSYS, upcall_start(NULL));
    CHECK(upcall_served_by() == UPCALL_NATIVE);
    upcall_thread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        OK(upcall_thread_create(&threads[i], NULL, counts, &threads[i]));
    for (int i = 0; i < THREADS; i++) {
        void *result;
        OK(upcall_thread_join(threads[i], &result));
        CHECK(result == &threads[i]);
    }
    CHECK(count == THREADS * 100);
    puts("ok");
}
