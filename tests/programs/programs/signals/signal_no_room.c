/* Threads compute on stacks that end right below the stack pointer: there is no room for a handler's frame.
 * Nobody has sent them a signal, so nothing may happen to them. */
#include "case.h"
#include <stdatomic.h>
#include <sys/mman.h>

enum { THREADS = 4, ROUNDS = 5, PAGE = 4096, ROOM = 1024 };

/* Computes with the stack pointer at `top`. */
static void compute_at(char *top, long turns)
{
    __asm__ volatile("mov %%rsp, %%rbx\n\t"
                     "mov %1, %%rsp\n"
                     "1: dec %0\n\t"
                     "jnz 1b\n\t"
                     "mov %%rbx, %%rsp"
                     : "+&r"(turns)
                     : "r"(top)
                     : "rbx", "cc", "memory");
}

static void *computes(void *unused)
{
    char *area = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(area == MAP_FAILED);
    MUST(mprotect(area + PAGE, PAGE, PROT_READ | PROT_WRITE));
    for (int round = 0; round < ROUNDS; round++) {
        compute_at(area + PAGE + ROOM, 20 * 1000 * 1000);
        usleep(100);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(computes, NULL);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("computes_without_room", 1, "never");
    return verdict();
}
