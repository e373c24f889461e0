/* A thread overflows its stack: SIGSEGV on its alternate stack, the address beside the stack. */
#include "case.h"
#include <setjmp.h>
#include <signal.h>

static _Thread_local sigjmp_buf back;
static _Thread_local char *altstack, *lowest;
static int on_altstack, near_stack, code;

static void handler(int signal, siginfo_t *info, void *context)
{
    char here;
    (void)signal, (void)context;
    on_altstack = &here >= altstack && &here < altstack + 65536;
    near_stack = (char *)info->si_addr < lowest && (char *)info->si_addr > lowest - (1 << 20);
    code = info->si_code;
    siglongjmp(back, 1);
}

__attribute__((noinline)) static int deeper(int depth)
{
    volatile char frame[1000];
    frame[0] = (char)depth;
    lowest = (char *)&frame[0];
    return depth < 0 ? 0 : deeper(depth + 1) + frame[0];
}

static void *body(void *unused)
{
    altstack = malloc(65536);
    stack_t stack = {.ss_sp = altstack, .ss_size = 65536};
    sigaltstack(&stack, NULL);
    usleep(1000);
    if (sigsetjmp(back, 1) == 0)
        deeper(1);
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    MUST(sigaction(SIGSEGV, &action, NULL));
    for (int i = 0; i < 3; i++) {
        on_altstack = near_stack = 0;
        join(start(body, NULL));
        check("stack_overflow", on_altstack && near_stack,
              "on its alternate stack %d, address beside the stack %d, si_code %d", on_altstack,
              near_stack, code);
    }
    return verdict();
}
