/* A program that registers restartable sequences itself (rseq(2)), where libc does not: either the kernel's answer is the
 * processor on which the thread runs, or the call is refused. The program executes itself to tell libc. */
#include "crowd.h"
#include <stdint.h>
#include <sys/syscall.h>

#define SIGNATURE 0x53053053
struct area {
    uint32_t start, processor;
    uint64_t section;
    uint32_t flags, rest[3];
} __attribute__((aligned(32)));
static _Thread_local volatile struct area area;
static int is_first_registered;

static int registers(void)
{
    area.processor = (uint32_t)-1;
    return syscall(SYS_rseq, &area, 32, 0, SIGNATURE) == 0;
}

/* Where the thread stays on one processor meanwhile the area says which. */
static long is_right(int is_registered)
{
    long wrong = 0;
    for (int i = 0; is_registered && i < 300; i++) {
        unsigned before, after;
        uint32_t told;
        usleep(300);
        do {
            MUST((int)syscall(SYS_getcpu, &before, NULL, NULL));
            told = area.processor;
            MUST((int)syscall(SYS_getcpu, &after, NULL, NULL));
        } while (before != after);
        wrong += told != before;
    }
    return wrong;
}

static void *body(void *unused)
{
    (void)unused;
    return (void *)is_right(registers());
}

int main(int count, char **arguments)
{
    if (count == 1) {
        char *again[] = {arguments[0], "again", NULL};
        MUST(setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0", 1));
        execv("/proc/self/exe", again);
        return 1;
    }
    is_first_registered = registers();
    begin_crowd();
    long wrong = (long)join(start(body, NULL));
    check("own_rseq", wrong == 0, "%ld times another processor", wrong);
    wrong = is_right(is_first_registered);
    check("own_rseq_before_threads", wrong == 0, "%ld times another processor", wrong);
    end_crowd();
    return verdict();
}
