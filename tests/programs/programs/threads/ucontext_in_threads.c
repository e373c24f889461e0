/* makecontext and swapcontext inside threads, with switches of the thread in between. */
#include "case.h"
#include <stdatomic.h>
#include <ucontext.h>

static atomic_int wrong;
static _Thread_local ucontext_t outside, inside;
static _Thread_local int steps;

static void coroutine(void)
{
    for (int i = 0; i < 100; i++) {
        steps++;
        if (i % 10 == 0)
            usleep(100);
        else
            sched_yield();
        swapcontext(&inside, &outside);
    }
}

static void *body(void *unused)
{
    char *stack = malloc(65536);
    getcontext(&inside);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = 65536;
    inside.uc_link = &outside;
    makecontext(&inside, coroutine, 0);
    for (int i = 0; i < 100; i++) {
        swapcontext(&outside, &inside);
        if (steps != i + 1)
            atomic_fetch_add(&wrong, 1);
    }
    free(stack);
    return unused;
}

int main(void)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        threads[i] = start(body, NULL);
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    check("ucontext_in_threads", wrong == 0, "%d wrong", wrong);
    return verdict();
}
