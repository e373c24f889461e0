/* Each thread keeps the alternate signal stack that it installed, and handlers run on it. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>

#define SIZE 65536
static atomic_int moved, off_stack;
static _Thread_local char *mine;

static void handler(int signal)
{
    char here;
    (void)signal;
    if (&here < mine || &here >= mine + SIZE)
        atomic_fetch_add(&off_stack, 1);
}

static void *body(void *unused)
{
    mine = malloc(SIZE);
    stack_t stack = {.ss_sp = mine, .ss_size = SIZE}, seen;
    sigaltstack(&stack, NULL);
    for (int turn = 0; turn < 60; turn++) {
        if (turn % 3 == 0)
            usleep(100);
        else
            sched_yield();
        sigaltstack(NULL, &seen);
        if (seen.ss_sp != mine || seen.ss_size != SIZE || seen.ss_flags != 0)
            atomic_fetch_add(&moved, 1);
        if (turn % 10 == 0)
            pthread_kill(pthread_self(), SIGUSR1);
    }
    stack.ss_flags = SS_DISABLE;
    sigaltstack(&stack, NULL);
    free(mine);
    return unused;
}

static void *fresh(void *unused)
{
    (void)unused;
    stack_t seen;
    sigaltstack(NULL, &seen);
    return (void *)(long)seen.ss_flags;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        threads[i] = start(body, NULL);
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    check("altstack_per_thread", moved == 0, "%d times another stack", moved);
    check("altstack_used", off_stack == 0, "%d handlers off the stack", off_stack);
    long flags = (long)join(start(fresh, NULL));
    check("altstack_not_inherited", flags == SS_DISABLE, "flags %ld", flags);
    return verdict();
}
