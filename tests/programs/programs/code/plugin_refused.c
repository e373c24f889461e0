/* plugin_sites.c, but no jump fits its one system-call instruction: this and the next one are both
 * jumped to. */
#include <sys/syscall.h>

long squeezed(long number, long a, long b, long c, long d);
__asm__(".text\n"
        ".globl squeezed\n"
        ".type squeezed,@function\n"
        "squeezed:\n"
        ".cfi_startproc\n"
        "mov %rdi, %rax\n"
        "mov %rsi, %rdi\n"
        "mov %rdx, %rsi\n"
        "mov %rcx, %rdx\n"
        "mov %r8, %r10\n"
        "test %rax, %rax\n"
        "js 2f\n"
        "1: syscall\n"
        "2: cmp $-513, %rax\n"
        "je 1b\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size squeezed, . - squeezed\n");

#define own squeezed
#include "plugin_sites.c"
