/* malloc, realloc and free across threads: blocks are freed by another thread than allocated them,
 * content is kept, threads come and go. */
#include "case.h"
#include <stdatomic.h>

#define SLOTS 64
static _Atomic(unsigned char *) slots[SLOTS];
static atomic_int wrong;

static void *body(void *number)
{
    unsigned seed = (unsigned)(long)number * 7919 + 1;
    for (int i = 0; i < 4000; i++) {
        seed = seed * 1103515245 + 12345;
        size_t size = 16 + (seed >> 8) % (i % 50 == 0 ? 200000 : 800);
        unsigned char *block = malloc(size);
        block[0] = block[15] = (unsigned char)seed;
        if (i % 7 == 0) {
            block = realloc(block, size * 2);
            block[size * 2 - 1] = 1;
        }
        block = atomic_exchange(&slots[seed >> 16 & (SLOTS - 1)], block);
        if (block != NULL && block[0] != block[15])
            atomic_fetch_add(&wrong, 1);
        free(block);
    }
    return NULL;
}

int main(void)
{
    for (int wave = 0; wave < 3; wave++) {
        pthread_t threads[20];
        for (long i = 0; i < 20; i++)
            threads[i] = start(body, (void *)(wave * 20 + i));
        for (int i = 0; i < 20; i++)
            join(threads[i]);
    }
    check("malloc_threads", wrong == 0, "%d blocks changed", wrong);
    return verdict();
}
