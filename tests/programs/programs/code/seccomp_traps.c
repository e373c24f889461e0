/* A program with a seccomp filter and a SIGSYS handler of its own, which answers what the filter
 * traps; with code made at run time, so that the runtime uses the signal too. */
#include "case.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1
#endif

static atomic_int traps, wrong_number, wrong_address, wrong_answer;

/* On x86-64 the answer goes where the call would have left it. */
static void handler(int signal, siginfo_t *information, void *context)
{
    ucontext_t *frame = context;
    atomic_fetch_add(&traps, signal == SIGSYS && information->si_code == SYS_SECCOMP);
    if (information->si_syscall != SYS_getpriority)
        atomic_fetch_add(&wrong_number, 1);
    if ((long)information->si_call_addr != frame->uc_mcontext.gregs[REG_RIP])
        atomic_fetch_add(&wrong_address, 1);
    frame->uc_mcontext.gregs[REG_RAX] = 1000 + frame->uc_mcontext.gregs[REG_RDI];
}

static long (*page)(void);

static void *body(void *number)
{
    for (int i = 0; i < 20; i++) {
        if (syscall(SYS_getpriority, (long)number, 0) != 1000 + (long)number)
            atomic_fetch_add(&wrong_answer, 1);
        if (page() != syscall(SYS_getppid))
            atomic_fetch_add(&wrong_answer, 1);
        sched_yield();
    }
    return NULL;
}

int main(void)
{
    /* mov $110,%eax; syscall; ret: getppid */
    static const unsigned char code[] = {0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3};
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    MUST(memory == MAP_FAILED);
    memcpy(memory, code, sizeof code);
    page = (long (*)(void))memory;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGSYS, &action, NULL));
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    body((void *)1L);
    int alone = traps;
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        threads[i] = start(body, (void *)(i + 2));
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    body((void *)9L);
    check("traps_alone", alone == 20, "%d", alone);
    check("traps", traps == 120, "%d", (int)traps);
    check("numbers", wrong_number == 0, "%d", (int)wrong_number);
    check("addresses", wrong_address == 0, "%d", (int)wrong_address);
    check("answers", wrong_answer == 0, "%d", (int)wrong_answer);
    struct sigaction now_action;
    MUST(sigaction(SIGSYS, NULL, &now_action));
    check("action_kept", now_action.sa_sigaction == handler && (now_action.sa_flags & ~0x4000000) == SA_SIGINFO,
          "flags %x", now_action.sa_flags);
    return verdict();
}
