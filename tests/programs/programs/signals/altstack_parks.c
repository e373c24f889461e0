/* Handlers on alternate stacks wait, nest and go on elsewhere; what they interrupt keeps all of its
 * registers, and each thread its stacks. */
#include "case.h"
#include <immintrin.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

enum { THREADS = 3, SIZE = 65536, ROUNDS = 15 };

struct own {
    pthread_t thread;
    char *stack;
    atomic_int handled, nested, ready;
    long wrong_registers, off_stack, wrong_stack;
};

static struct own owns[THREADS];
static _Thread_local struct own *self;
static atomic_int over;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int is_on_mine(void)
{
    char *here = __builtin_frame_address(0);
    return here > self->stack && here <= self->stack + SIZE;
}

static void second(int signal)
{
    char filled[512];
    (void)signal;
    memset(filled, 0x77, sizeof filled);
    __asm__ volatile("" ::"r"(filled) : "memory");
    self->off_stack += !is_on_mine();
    sched_yield();
    atomic_fetch_add(&self->nested, 1);
}

static void first(int signal)
{
    stack_t now;
    (void)signal;
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0\n movdqa %%xmm0, %%xmm1\n movdqa %%xmm0, %%xmm15\n"
                     "fninit\n" ::
                         : "xmm0", "xmm1", "xmm15");
    self->off_stack += !is_on_mine();
    raise(SIGUSR2);
    usleep(200);
    pthread_mutex_lock(&mutex);
    sched_yield();
    pthread_mutex_unlock(&mutex);
    MUST(sigaltstack(NULL, &now));
    self->wrong_stack += now.ss_sp != self->stack || now.ss_flags != SS_ONSTACK;
    atomic_fetch_add(&self->handled, 1);
}

/* Keeps eight registers of 256 bits, or their lower halves, until `handled` is not `seen`. */
__attribute__((target("avx"))) static int keeps_wide(atomic_int *handled, int seen, long seed)
{
    long in[4] = {seed, ~seed, seed * 3, seed * 5}, out[4 * 3];
    __asm__ volatile("vmovdqu (%1), %%ymm0\n vmovdqu %%ymm0, %%ymm1\n vmovdqu %%ymm0, %%ymm15\n"
                     "1: cmp %3, (%0)\n je 1b\n"
                     "vmovdqu %%ymm0, (%2)\n vmovdqu %%ymm1, 32(%2)\n vmovdqu %%ymm15, 64(%2)\n"
                     :
                     : "r"(handled), "r"(in), "r"(out), "r"(seen)
                     : "xmm0", "xmm1", "xmm15", "memory", "cc");
    _mm256_zeroupper();
    return memcmp(out, in, 32) == 0 && memcmp(out + 4, in, 32) == 0 && memcmp(out + 8, in, 32) == 0;
}

static int keeps_narrow(atomic_int *handled, int seen, long seed)
{
    long in[2] = {seed, ~seed}, out[2 * 3];
    __asm__ volatile("movdqu (%1), %%xmm0\n movdqa %%xmm0, %%xmm1\n movdqa %%xmm0, %%xmm15\n"
                     "1: cmp %3, (%0)\n je 1b\n"
                     "movdqu %%xmm0, (%2)\n movdqu %%xmm1, 16(%2)\n movdqu %%xmm15, 32(%2)\n"
                     :
                     : "r"(handled), "r"(in), "r"(out), "r"(seen)
                     : "xmm0", "xmm1", "xmm15", "memory", "cc");
    return memcmp(out, in, 16) == 0 && memcmp(out + 2, in, 16) == 0 && memcmp(out + 4, in, 16) == 0;
}

static void *computes(void *mine)
{
    self = mine;
    self->stack = malloc(SIZE);
    stack_t stack = {.ss_sp = self->stack, .ss_size = SIZE}, now;
    MUST(sigaltstack(&stack, NULL));
    int wide = __builtin_cpu_supports("avx");
    for (int round = 0; round < ROUNDS; round++) {
        long seed = (long)(uintptr_t)self + round * 64;
        atomic_store(&self->ready, round + 1);
        self->wrong_registers += wide ? !keeps_wide(&self->handled, round, seed)
                                      : !keeps_narrow(&self->handled, round, seed);
        MUST(sigaltstack(NULL, &now));
        self->wrong_stack += now.ss_sp != self->stack || now.ss_flags != 0;
    }
    return NULL;
}

/* Has no alternate stack: is one of those that run meanwhile. */
static void *turns(void *unused)
{
    while (!atomic_load(&over))
        sched_yield();
    return unused;
}

int main(void)
{
    struct sigaction one = {.sa_handler = first, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct sigaction two = {.sa_handler = second, .sa_flags = SA_ONSTACK | SA_RESTART};
    long registers = 0, off = 0, stacks = 0, nested = 0;
    MUST(sigaction(SIGUSR1, &one, NULL));
    MUST(sigaction(SIGUSR2, &two, NULL));
    pthread_t other = start(turns, NULL);
    for (int i = 0; i < THREADS; i++)
        owns[i].thread = start(computes, &owns[i]);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < THREADS; i++) {
            while (atomic_load(&owns[i].ready) <= round)
                sched_yield();
            MUST(pthread_kill(owns[i].thread, SIGUSR1));
        }
    for (int i = 0; i < THREADS; i++) {
        join(owns[i].thread);
        registers += owns[i].wrong_registers;
        off += owns[i].off_stack;
        stacks += owns[i].wrong_stack;
        nested += owns[i].nested;
    }
    atomic_store(&over, 1);
    join(other);
    check("registers_are_kept", registers == 0, "%ld differ", registers);
    check("handlers_are_on_their_stacks", off == 0, "%ld are not", off);
    check("each_has_its_stack", stacks == 0, "%ld times another", stacks);
    check("nested", nested == (long)THREADS * ROUNDS, "%ld", nested);
    return verdict();
}
