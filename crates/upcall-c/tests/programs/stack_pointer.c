/* Threads that compute for several time slices while their stack pointer is in a buffer of the heap, as in kernels of oneDNN:
 * what is around it stays as it is. */
#include "check.h"

enum { THREADS = 6, ROUNDS = 3, SIZE = 1 << 16 };

#define TURNS 10000000L

/* So many turns of a loop with this stack pointer, where that can be said here. */
static void compute_at(char *stack_pointer)
{
    long left = TURNS;
#if defined(__x86_64__)
    __asm__ volatile("mov %%rsp, %%r15\n\t"
                     "mov %[at], %%rsp\n"
                     "1: dec %[left]\n\t"
                     "jnz 1b\n\t"
                     "mov %%r15, %%rsp"
                     : [left] "+r"(left)
                     : [at] "r"(stack_pointer)
                     : "r15", "cc", "memory");
#else
    (void)stack_pointer;
    (void)left;
#endif
}

static void *computes(void *seed)
{
    unsigned char *bytes = malloc(SIZE);
    CHECK(bytes != NULL);
    for (int round = 0; round < ROUNDS; round++) {
        memset(bytes, *(char *)seed, SIZE);
        compute_at((char *)bytes + SIZE / 2);
        for (int i = 0; i < SIZE; i++)
            CHECK(bytes[i] == *(unsigned char *)seed);
    }
    free(bytes);
    return NULL;
}

int main(void)
{
    static char seeds[THREADS] = "upcall";
    upcall_thread_t threads[THREADS];
    start_as_told();
    for (int i = 0; i < THREADS; i++)
        OK(upcall_thread_create(&threads[i], NULL, computes, &seeds[i]));
    computes(&seeds[0]);
    for (int i = 0; i < THREADS; i++)
        OK(upcall_thread_join(threads[i], NULL));
    puts("ok");
    return 0;
}
