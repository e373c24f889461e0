/* Asynchronous cancellation of a thread that computes and never calls anything. */
#include "case.h"
#include <stdatomic.h>

static atomic_int spinning;

static void *spinner(void *unused)
{
    (void)unused;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    atomic_store(&spinning, 1);
    for (;;)
        __asm__ volatile("" ::: "memory");
    return NULL;
}

int main(void)
{
    for (int round = 0; round < 5; round++) {
        atomic_store(&spinning, 0);
        pthread_t thread = start(spinner, NULL);
        while (!atomic_load(&spinning))
            sched_yield();
        pthread_cancel(thread);
        void *result = join(thread);
        if (result != PTHREAD_CANCELED)
            check("cancel_async_result", 0, "round %d: joined %p", round, result);
    }
    check("cancel_async", case_failures == 0, "see above");
    return verdict();
}
