/* Threads fault pages in at random: a file mapping, anonymous memory that is dropped and filled
 * again, and SIGBUS past a file's end, handled on the faulting thread. */
#include "case.h"
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define PAGES 2048
static unsigned char *mapped, *anonymous;
static atomic_int wrong, buses;
static _Thread_local sigjmp_buf back;

static void handler(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

/* In a function of its own, so that the jump back clobbers nobody's variables. */
__attribute__((noinline)) static void fault_past_the_end(void)
{
    if (sigsetjmp(back, 1) == 0) {
        ((volatile unsigned char *)mapped)[PAGES * 4096L] = 1;
        atomic_fetch_add(&wrong, 1);
    } else {
        atomic_fetch_add(&buses, 1);
    }
}

static void *body(void *number)
{
    unsigned seed = (unsigned)(long)number + 1;
    for (int i = 0; i < 3000; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned page = (seed >> 8) % PAGES;
        if (mapped[page * 4096L] != (unsigned char)page)
            atomic_fetch_add(&wrong, 1);
        unsigned char *mine = anonymous + ((long)number * PAGES + page) * 4096;
        if (*mine != 0 && *mine != (unsigned char)(page + 1))
            atomic_fetch_add(&wrong, 1);
        *mine = (unsigned char)(page + 1);
        if (i % 100 == 0)
            madvise(mapped, PAGES * 4096L, MADV_DONTNEED);
        if (i % 500 == 0)
            madvise(anonymous + (long)number * PAGES * 4096, PAGES * 4096L, MADV_DONTNEED);
        if (i % 1000 == 0)
            fault_past_the_end();
    }
    return NULL;
}

int main(void)
{
    FILE *file = tmpfile();
    for (int page = 0; page < PAGES; page++) {
        unsigned char content[4096] = {(unsigned char)page};
        MUST(fwrite(content, sizeof content, 1, file) != 1);
    }
    MUST(fflush(file));
    mapped = mmap(NULL, (PAGES + 1) * 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(file), 0);
    anonymous = mmap(NULL, 8 * PAGES * 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGBUS, &action, NULL));
    pthread_t threads[8];
    for (long i = 0; i < 8; i++)
        threads[i] = start(body, (void *)i);
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    check("page_faults", wrong == 0, "%d wrong bytes", wrong);
    check("page_faults_sigbus", buses == 24, "%d of 24", buses);
    return verdict();
}
