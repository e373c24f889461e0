/* A process that forks again and again while its code is not what its file says: somebody has written to it, as a debugger
 * does that sets a breakpoint. Each child has what was written, and so has the parent. */
#include "case.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define FORKS 140

/* A call that a rewriter of code meets in the program itself. */
__attribute__((noinline)) static long call(long number)
{
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number) : "rcx", "r11", "memory");
    return answer;
}

/* `mov $1, %eax; ret`, between pages that nobody writes. */
int answer(void);
__asm__(".text\n"
        ".p2align 12\n"
        ".skip 4096, 0xcc\n"
        ".globl answer\n"
        ".type answer, @function\n"
        "answer: mov $1, %eax\n"
        "ret\n"
        ".size answer, .-answer\n"
        ".p2align 12\n"
        ".skip 4096, 0xcc\n");

static void write_code(void *address, int number)
{
    int memory = open("/proc/self/mem", O_WRONLY | O_CLOEXEC);
    MUST(memory < 0);
    MUST(pwrite(memory, &number, sizeof number, (off_t)(uintptr_t)address) != sizeof number);
    close(memory);
}

int main(void)
{
    int wrong = 0, failed = 0;
    check("as it is in the file", answer() == 1, "%d", answer());
    for (int i = 0; i < FORKS; i++) {
        if (i % 35 == 0)
            write_code((char *)answer + 1, i + 2);
        int wanted = i / 35 * 35 + 2;
        pid_t child = fork();
        MUST(child < 0);
        if (child == 0)
            _exit(answer() == wanted && call(SYS_getpid) == getpid() ? 0 : 1);
        int status;
        MUST(waitpid(child, &status, 0) != child);
        failed += status != 0;
        wrong += answer() != wanted || call(SYS_getpid) != getpid();
    }
    check("children", failed == 0, "%d of %d", failed, FORKS);
    check("the parent", wrong == 0, "%d of %d", wrong, FORKS);
    return verdict();
}
