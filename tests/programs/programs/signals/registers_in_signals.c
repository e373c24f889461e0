/* A computing thread's vector registers survive its own signal handlers that use them, while
 * other threads preempt it. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

static atomic_long handled, wrong;
static atomic_int stop;

static void handler(int signal)
{
    (void)signal;
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0\n movdqa %%xmm0, %%xmm7\n movdqa %%xmm0, %%xmm15\n"
                     "fninit\n"
                     ::: "xmm0", "xmm7", "xmm15");
    atomic_fetch_add(&handled, 1);
}

static void *body(void *number)
{
    long seed = (long)number + 1;
    while (!atomic_load(&stop)) {
        long in[2] = {seed, ~seed}, out[6] = {0};
        __asm__ volatile("movdqu (%0), %%xmm0\n movdqa %%xmm0, %%xmm7\n movdqa %%xmm0, %%xmm15\n"
                         "mov $100000, %%ecx\n 1: dec %%ecx\n jnz 1b\n"
                         "movdqu %%xmm0, (%1)\n movdqu %%xmm7, 16(%1)\n movdqu %%xmm15, 32(%1)\n"
                         :
                         : "r"(in), "r"(out)
                         : "rcx", "xmm0", "xmm7", "xmm15", "memory", "cc");
        for (int i = 0; i < 6; i += 2)
            if (out[i] != in[0] || out[i + 1] != in[1])
                atomic_fetch_add(&wrong, 1);
        seed += 16;
    }
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGPROF, &action, NULL));
    MUST(sigaction(SIGUSR1, &action, NULL));
    struct itimerval timer = {{0, 5000}, {0, 5000}}, none = {0};
    MUST(setitimer(ITIMER_PROF, &timer, NULL));
    pthread_t threads[6];
    for (long i = 0; i < 6; i++)
        threads[i] = start(body, (void *)i);
    while (atomic_load(&handled) < 150) {
        usleep(2000);
        pthread_kill(threads[atomic_load(&handled) % 6], SIGUSR1);
    }
    MUST(setitimer(ITIMER_PROF, &none, NULL));
    atomic_store(&stop, 1);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    check("registers_in_signals", wrong == 0, "%ld wrong after %ld signals", wrong, handled);
    return verdict();
}
