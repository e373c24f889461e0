/* A program with a malloc of its own, which counts: nobody but libc may call it before main, and at dlopen
 * nobody but the loader. The counts are printed, so that they are compared with those of the native run. */
#include "case.h"
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

static long calls;
static char arena[64 << 20] __attribute__((aligned(64)));
static size_t used;

static void *take(size_t alignment, size_t size)
{
    calls++;
    size_t start = (used + 16 + alignment - 1) & ~(alignment - 1);
    if (start + size > sizeof arena) {
        return NULL;
    }
    used = start + size;
    *(size_t *)(arena + start - 8) = size;
    return arena + start;
}

void *malloc(size_t size) { return take(16, size); }
void *calloc(size_t count, size_t size) { return take(16, count * size); }
void free(void *memory) { (void)memory; }
void *memalign(size_t alignment, size_t size) { return take(alignment < 16 ? 16 : alignment, size); }
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **memory, size_t alignment, size_t size)
{
    *memory = memalign(alignment, size);
    return *memory == NULL ? ENOMEM : 0;
}
void *realloc(void *old, size_t size)
{
    char *memory = take(16, size);
    if (old != NULL && memory != NULL) {
        size_t before = *(size_t *)((char *)old - 8);
        memcpy(memory, old, before < size ? before : size);
    }
    return memory;
}

int main(int count, char **arguments)
{
    long before_main = calls;
    printf("ok %ld calls before main\n", before_main);
    before_main = calls;
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    long of_dlopen = calls - before_main;
    check("loaded", library != NULL, "%s", count > 1 ? dlerror() : "no argument");
    printf("ok %ld calls by dlopen\n", of_dlopen);
    return verdict();
}
