/* A filter traps what gives a thread a nice value of its own, and what such a thread does later: the program's handler
 * answers, for the thread that made the call. */
#include "case.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { NOBODY = 60000, ROUNDS = 50 };

static __thread int traps;
/* The nice value of the program. */
static int inherited;

static void handler(int signal, siginfo_t *information, void *context)
{
    ucontext_t *frame = context;
    traps += signal == SIGSYS && information->si_code == 1;
    frame->uc_mcontext.gregs[REG_RAX] = 1000 + information->si_syscall;
}

/* The calls of these numbers, where the first word is not above `most`. */
static void trap(const int *numbers, int count, unsigned most)
{
    for (int i = 0; i < count; i++) {
        struct sock_filter filter[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], 0, 3),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
            BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, most, 1, 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
        MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
    }
}

static pthread_barrier_t meets;

/* It has a nice value before the filters come. */
static void *bound(void *unused)
{
    (void)unused;
    long bad = 0;
    MUST(setpriority(PRIO_PROCESS, 0, 3));
    pthread_barrier_wait(&meets);
    pthread_barrier_wait(&meets);
    for (int i = 0; i < ROUNDS; i++) {
        bad += syscall(SYS_dup2, 0, 1) != 1000 + SYS_dup2;
        bad += syscall(SYS_setpriority, PRIO_PROCESS, 0, 4) != 1000 + SYS_setpriority;
        sched_yield();
    }
    bad += traps != 2 * ROUNDS;
    bad += getpriority(PRIO_PROCESS, 0) != 3;
    return (void *)bad;
}

static void *asks(void *unused)
{
    (void)unused;
    long bad = 0;
    for (int i = 0; i < ROUNDS; i++) {
        bad += syscall(SYS_setpriority, PRIO_PROCESS, 0, 5) != 1000 + SYS_setpriority;
        bad += syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) != 1000 + SYS_setresuid;
        sched_yield();
    }
    bad += traps != 2 * ROUNDS;
    bad += getpriority(PRIO_PROCESS, 0) != inherited;
    return (void *)bad;
}

int main(void)
{
    static const int of_anything[] = {SYS_setpriority, SYS_dup2}, of_ids[] = {SYS_setresuid};
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGSYS, &action, NULL));
    MUST(pthread_barrier_init(&meets, NULL, 2));
    inherited = getpriority(PRIO_PROCESS, 0);
    pthread_t before = start(bound, NULL);
    pthread_barrier_wait(&meets);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    trap(of_anything, 2, 100);
    trap(of_ids, 1, NOBODY);
    pthread_barrier_wait(&meets);
    long bad = (long)join(before);
    check("trapped_later", bad == 0, "%ld wrong", bad);
    bad = (long)join(start(asks, NULL));
    check("trapped_first", bad == 0, "%ld wrong", bad);
    return verdict();
}
