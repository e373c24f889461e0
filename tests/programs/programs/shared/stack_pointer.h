/* Code whose stack pointer is not in its thread's stack, as that of kernels of matrix libraries. */
#ifndef STACK_POINTER_H
#define STACK_POINTER_H

/* So many turns of a loop with this stack pointer. */
__attribute__((unused)) static void compute_at(char *stack_pointer, long turns)
{
    __asm__ volatile("mov %%rsp, %%r15\n\t"
                     "mov %[at], %%rsp\n"
                     "1: dec %[left]\n\t"
                     "jnz 1b\n\t"
                     "mov %%r15, %%rsp"
                     : [left] "+r"(turns)
                     : [at] "r"(stack_pointer)
                     : "r15", "cc", "memory");
}

#endif
