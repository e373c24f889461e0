/* siglongjmp out of SIGSEGV and SIGFPE handlers, on several threads at once, with the faulting
 * address right each time. */
#include "case.h"
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>

static _Thread_local sigjmp_buf back;
static _Thread_local void *address;
static atomic_int wrong;

static void handler(int signal, siginfo_t *info, void *context)
{
    (void)context;
    address = info->si_addr;
    siglongjmp(back, signal);
}

static void *body(void *number)
{
    long self = (long)number;
    for (int i = 0; i < 50; i++) {
        int signal = sigsetjmp(back, 1);
        if (signal == 0) {
            *(volatile int *)(16 + self * 16) = 1;
            atomic_fetch_add(&wrong, 1);
        } else if (signal != SIGSEGV || address != (void *)(16 + self * 16)) {
            atomic_fetch_add(&wrong, 1);
        }
        signal = sigsetjmp(back, 1);
        if (signal == 0) {
            /* Compilers know ways to divide by a variable without dividing. */
            __asm__ volatile("xor %%ecx, %%ecx\n xor %%edx, %%edx\n mov $1, %%eax\n idivl %%ecx"
                             ::: "rax", "rcx", "rdx", "cc");
            atomic_fetch_add(&wrong, 1);
        } else if (signal != SIGFPE) {
            atomic_fetch_add(&wrong, 1);
        }
        sched_yield();
    }
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGSEGV, &action, NULL));
    MUST(sigaction(SIGFPE, &action, NULL));
    pthread_t threads[6];
    for (long i = 0; i < 6; i++)
        threads[i] = start(body, (void *)i);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    check("siglongjmp_segv", wrong == 0, "%d wrong", wrong);
    return verdict();
}
