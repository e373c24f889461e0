/* Threads that compute for several time slices while their stack pointer is in a buffer of the heap, as in kernels of oneDNN:
 * what is around it stays as it is, since nobody sends a signal. Then on stacks of their own making, which have just room
 * for what they call there. */
#include "case.h"
#include <ucontext.h>

enum { THREADS = 6, ROUNDS = 8, SIZE = 1 << 16, SMALL = 1 << 12 };

#define TURNS 20000000L

/* So many turns of a loop with this stack pointer. */
static void compute_at(char *stack_pointer)
{
    long left = TURNS;
    __asm__ volatile("mov %%rsp, %%r15\n\t"
                     "mov %[at], %%rsp\n"
                     "1: dec %[left]\n\t"
                     "jnz 1b\n\t"
                     "mov %%r15, %%rsp"
                     : [left] "+r"(left)
                     : [at] "r"(stack_pointer)
                     : "r15", "cc", "memory");
}

static int changed(const unsigned char *bytes, int seed)
{
    int count = 0;
    for (int i = 0; i < SIZE; i++) {
        count += bytes[i] != (unsigned char)(i * 7 + seed);
    }
    return count;
}

static void *in_the_heap(void *number)
{
    long bad = 0, seed = (long)number;
    unsigned char *bytes = malloc(SIZE);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SIZE; i++) {
            bytes[i] = (unsigned char)(i * 7 + seed);
        }
        compute_at((char *)bytes + SIZE / 2);
        bad += changed(bytes, (int)seed);
    }
    free(bytes);
    return (void *)bad;
}

static __thread ucontext_t back, there;

static void turns(void)
{
    for (volatile long left = TURNS; left > 0; left--) {
    }
}

/* Below the small stack is other memory. */
static void *on_small_stacks(void *number)
{
    long bad = 0, seed = (long)number;
    unsigned char *bytes = malloc(SIZE + SMALL);
    for (int i = 0; i < SIZE; i++) {
        bytes[i] = (unsigned char)(i * 7 + seed);
    }
    MUST(getcontext(&there));
    there.uc_stack.ss_sp = bytes + SIZE;
    there.uc_stack.ss_size = SMALL;
    there.uc_link = &back;
    makecontext(&there, turns, 0);
    MUST(swapcontext(&back, &there));
    bad += changed(bytes, (int)seed);
    free(bytes);
    return (void *)bad;
}

static void try(const char *name, void *(*work)(void *))
{
    pthread_t threads[THREADS];
    long bad = 0;
    for (long i = 0; i < THREADS; i++) {
        threads[i] = start(work, (void *)i);
    }
    /* The first thread, too. */
    bad += (long)work((void *)(long)THREADS);
    for (int i = 0; i < THREADS; i++) {
        void *its;
        MUST(pthread_join(threads[i], &its));
        bad += (long)its;
    }
    check(name, bad == 0, "%ld bytes changed", bad);
}

int main(void)
{
    try("in_the_heap", in_the_heap);
    try("on_small_stacks", on_small_stacks);
    return verdict();
}
