/* A system-call instruction around which no five bytes are free of jump targets: the instruction
 * and the one behind it are both jumped to. Two threads wait and wake by it. */
#include "case.h"
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* rdi: the number; rsi, rdx, rcx: three words. Makes the call again while the answer is EINTR. */
long squeezed(long number, long a, long b, long c);
__asm__(".text\n"
        ".globl squeezed\n"
        ".type squeezed,@function\n"
        "squeezed:\n"
        ".cfi_startproc\n"
        "push %rbx\n"
        ".cfi_adjust_cfa_offset 8\n"
        "mov %rdi, %rax\n"
        "mov %rdi, %rbx\n"
        "mov %rsi, %rdi\n"
        "mov %rdx, %rsi\n"
        "mov %rcx, %rdx\n"
        "xor %r10d, %r10d\n"
        "test %rax, %rax\n"
        "js 2f\n"
        "1: syscall\n"
        "2: cmp $-4, %rax\n"
        "jne 3f\n"
        "mov %rbx, %rax\n"
        "jmp 1b\n"
        "3: pop %rbx\n"
        ".cfi_adjust_cfa_offset -8\n"
        "ret\n"
        ".cfi_endproc\n"
        ".size squeezed, . - squeezed\n");

/* vfork there; the child ends without a step on the parent's stack. */
long vforked(void);
__asm__(".text\n"
        ".globl vforked\n"
        ".type vforked,@function\n"
        "vforked:\n"
        ".cfi_startproc\n"
        "mov $58, %eax\n"
        "test %rsp, %rsp\n"
        "jz 2f\n"
        "1: syscall\n"
        "2: test %rax, %rax\n"
        "jnz 3f\n"
        "mov $11, %edi\n"
        "mov $231, %eax\n"
        "jmp 1b\n"
        "3: ret\n"
        ".cfi_endproc\n"
        ".size vforked, . - vforked\n");

/* Without unwind information, as hand-written runtimes have it. */
long unknown(long number, long a, long b, long c);
__asm__(".text\n"
        ".skip 256, 0x90\n"
        ".globl unknown\n"
        ".type unknown,@function\n"
        "unknown:\n"
        "mov %rdi, %rax\n"
        "mov %rsi, %rdi\n"
        "mov %rdx, %rsi\n"
        "mov %rcx, %rdx\n"
        "xor %r10d, %r10d\n"
        "syscall\n"
        "ret\n"
        ".size unknown, . - unknown\n"
        ".skip 256, 0x90\n");

static unsigned ball;
static atomic_int wrong_id;
enum { ROUNDS = 1000 };

static void *player(void *argument)
{
    unsigned self = (unsigned)(long)argument;
    long (*enter)(long, long, long, long) = self ? squeezed : unknown;
    for (int round = 0; round < ROUNDS; round++) {
        while (__atomic_load_n(&ball, __ATOMIC_ACQUIRE) != self)
            enter(SYS_futex, (long)&ball, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, !self);
        if (enter(SYS_gettid, 0, 0, 0) != gettid())
            atomic_fetch_add(&wrong_id, 1);
        __atomic_store_n(&ball, !self, __ATOMIC_RELEASE);
        enter(SYS_futex, (long)&ball, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
    }
    return NULL;
}

int main(void)
{
    check("alone", squeezed(SYS_getpid, 0, 0, 0) == getpid(), "another id");
    pthread_t first = start(player, (void *)0L), second = start(player, (void *)1L);
    join(first);
    join(second);
    check("ids", wrong_id == 0, "%d", wrong_id);

    int status = 0;
    long pid = vforked();
    check("vfork", waitpid((pid_t)pid, &status, 0) == pid && WEXITSTATUS(status) == 11, "%ld, %x", pid,
          status);
    pid = unknown(SYS_fork, 0, 0, 0);
    if (pid == 0)
        unknown(SYS_exit_group, 12, 0, 0);
    check("fork", waitpid((pid_t)pid, &status, 0) == pid && WEXITSTATUS(status) == 12, "%ld, %x", pid,
          status);
    errno = 0;
    check("error", unknown(SYS_futex, 8, FUTEX_WAKE + 100, 0) == -ENOSYS && errno == 0, "errno %d", errno);
    return verdict();
}
