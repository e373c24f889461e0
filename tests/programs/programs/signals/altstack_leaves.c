/* Handlers on alternate stacks do not come back: they jump out, or they fork, and the child comes back; the
 * stacks are used again, in the child as well. */
#include "case.h"
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>

enum { THREADS = 4, SIZE = 65536, JUMPS = 500, FORKS = 5 };

static _Thread_local char *mine;
static _Thread_local sigjmp_buf back;
static _Thread_local volatile long handled, off_stack, counted;
static _Thread_local volatile pid_t child;

static int is_on(char *stack)
{
    char *here = __builtin_frame_address(0);
    return here > stack && here <= stack + SIZE;
}

static void jumps(int signal)
{
    (void)signal;
    handled++;
    off_stack += !is_on(mine);
    if (handled % 3 == 0)
        sched_yield();
    siglongjmp(back, 1);
}

static void forks(int signal)
{
    (void)signal;
    off_stack += !is_on(mine);
    child = fork();
}

static void counts(int signal)
{
    (void)signal;
    counted += is_on(mine);
}

static void own_stack(void)
{
    mine = malloc(SIZE);
    stack_t stack = {.ss_sp = mine, .ss_size = SIZE};
    MUST(sigaltstack(&stack, NULL));
}

static void *jumper(void *unused)
{
    (void)unused;
    own_stack();
    for (volatile int i = 0; i < JUMPS; i++)
        if (sigsetjmp(back, 1) == 0)
            raise(SIGUSR1);
    return (void *)(off_stack + (handled != JUMPS));
}

/* In the child, which has come back from its handler. */
static int child_is_right(void)
{
    stack_t now;
    counted = 0;
    if (sigaltstack(NULL, &now) != 0 || now.ss_sp != mine || now.ss_flags != 0)
        return 2;
    raise(SIGTERM);
    if (counted != 1)
        return 3;
    now.ss_flags = SS_DISABLE;
    if (sigaltstack(&now, NULL) != 0)
        return 4;
    raise(SIGTERM);
    return counted == 1 ? 42 : 5;
}

static void *forker(void *unused)
{
    long wrong = 0;
    (void)unused;
    own_stack();
    for (int i = 0; i < FORKS; i++) {
        int status = 0;
        __asm__ volatile("int3" ::: "memory");
        if (child == 0)
            _exit(child_is_right());
        waitpid(child, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 42)
            wrong = status ? status : -1;
        raise(SIGTERM);
    }
    return (void *)(wrong ? wrong : off_stack + (counted != FORKS));
}

static void *starter(void *unused) { return unused; }

/* The first thread of a process starts its second one while it is on its alternate stack. */
static void starts(int signal)
{
    stack_t now;
    (void)signal;
    join(start(starter, NULL));
    MUST(sigaltstack(NULL, &now));
    off_stack += now.ss_sp != mine || now.ss_flags != SS_ONSTACK;
}

static void first_in_handler(void)
{
    struct sigaction action = {.sa_handler = starts, .sa_flags = SA_ONSTACK};
    int status = 0;
    stack_t now;
    pid_t process = fork();
    if (process == 0) {
        MUST(sigaction(SIGUSR1, &action, NULL));
        own_stack();
        raise(SIGUSR1);
        join(start(starter, NULL));
        MUST(sigaltstack(NULL, &now));
        raise(SIGTERM);
        _exit(off_stack == 0 && now.ss_sp == mine && now.ss_flags == 0 && counted == 1 ? 0 : 1);
    }
    waitpid(process, &status, 0);
    check("first_thread_started_in_a_handler", status == 0, "status %#x", status);
}

int main(void)
{
    struct sigaction jump = {.sa_handler = jumps, .sa_flags = SA_ONSTACK};
    struct sigaction fork_ = {.sa_handler = forks, .sa_flags = SA_ONSTACK};
    struct sigaction count = {.sa_handler = counts, .sa_flags = SA_ONSTACK};
    pthread_t jumpers[THREADS], forkers[THREADS];
    long wrong = 0, forked = 0;
    MUST(sigaction(SIGTERM, &count, NULL));
    first_in_handler();
    MUST(sigaction(SIGUSR1, &jump, NULL));
    MUST(sigaction(SIGTRAP, &fork_, NULL));
    for (int i = 0; i < THREADS; i++) {
        jumpers[i] = start(jumper, NULL);
        forkers[i] = start(forker, NULL);
    }
    for (int i = 0; i < THREADS; i++) {
        wrong += (long)join(jumpers[i]);
        long status = (long)join(forkers[i]);
        forked = status ? status : forked;
    }
    check("jumps_out", wrong == 0, "%ld wrong", wrong);
    check("forks_inside", forked == 0, "%#lx", forked);
    return verdict();
}
