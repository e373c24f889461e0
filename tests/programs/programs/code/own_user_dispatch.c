/* A program that uses Syscall User Dispatch itself: a thread's calls go to its own handler while its selector says so,
 * from code outside of its range; other threads' do not, nor those of children. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

enum { OFF = 0, ON = 1, ALLOW = 0, BLOCK = 1, THREADS = 4, ROUNDS = 100 };

static __thread volatile char selector;
static __thread volatile int hits, number, wrong;
static __thread volatile intptr_t answer, jump;

static void handler(int signal, siginfo_t *information, void *context)
{
    ucontext_t *frame = context;
    long long *registers = (long long *)frame->uc_mcontext.gregs;
    selector = ALLOW;
    hits++;
    number = information->si_syscall;
    wrong += signal != SIGSYS || information->si_code != 2 || information->si_errno != 0 ||
             information->si_arch != 0xc000003e;
    wrong += (long long)information->si_call_addr != registers[REG_RIP];
    wrong += registers[REG_RAX] != information->si_syscall;
    if (answer != -1)
        registers[REG_RAX] = answer;
    if (jump != 0)
        registers[REG_RIP] = jump;
}

static int dispatch(int mode, unsigned long start, unsigned long length)
{
    return prctl(PR_SET_SYSCALL_USER_DISPATCH, mode, start, length, mode == ON ? (unsigned long)&selector : 0);
}

/* A call whose arguments, and some registers that it must keep, are looked at. */
static long blocked_call(long called, long argument)
{
    long result, kept = 0x1234567, also = 0;
    __asm__ volatile("mov $0x55aa, %%r12\n\t"
                     "mov %[kept], %%rbx\n\t"
                     "movb $1, (%[selector])\n\t"
                     "syscall\n\t"
                     "movb $0, (%[selector])\n\t"
                     "lea (%%rbx,%%r12), %[also]"
                     : "=a"(result), [also] "=&r"(also)
                     : "a"(called), "D"(argument), [selector] "S"(&selector), [kept] "r"(kept)
                     : "rcx", "r11", "rbx", "r12", "memory");
    wrong += also != 0x1234567 + 0x55aa;
    return result;
}

static void *dispatches(void *argument)
{
    hits = wrong = 0;
    answer = -1;
    MUST(dispatch(ON, 0, 0));
    for (int round = 0; round < ROUNDS; round++) {
        answer = 1000 + round;
        wrong += blocked_call(SYS_getppid, 5) != 1000 + round;
        wrong += hits != 2 * round + 1 || number != SYS_getppid;
        selector = BLOCK;
        long got = syscall(SYS_gettid);
        selector = ALLOW;
        wrong += got != 1000 + round || number != SYS_gettid;
        sched_yield();
        wrong += getppid() == 1000 + round;
    }
    int before = hits;
    MUST(dispatch(OFF, 0, 0));
    selector = BLOCK;
    wrong += getppid() <= 0 || hits != before;
    selector = ALLOW;
    return (void *)((intptr_t)wrong + (argument == (void *)1));
}

static void *does_not(void *unused)
{
    (void)unused;
    hits = 0;
    selector = BLOCK;
    for (int round = 0; round < ROUNDS; round++) {
        getppid();
        sched_yield();
    }
    return (void *)(intptr_t)hits;
}

/* The range lets through what is in it. */
static const unsigned char CODE[] = {0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3, /* mov $110,%eax; syscall; ret */
                                     0xb8, 42, 0, 0, 0, 0xc3 /* mov $42, %eax; ret */};

static void *in_code(void *unused)
{
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int (*call)(void) = (int (*)(void))code;
    int parent = getppid();
    (void)unused;
    memcpy(code, CODE, sizeof CODE);
    hits = wrong = 0;
    MUST(dispatch(ON, (unsigned long)code, 4096));
    answer = 77;
    selector = BLOCK;
    int inside = call();
    selector = ALLOW;
    wrong += inside != parent || hits != 0;
    MUST(dispatch(ON, 0, 0));
    selector = BLOCK;
    int outside = call();
    selector = ALLOW;
    wrong += outside != 77 || hits != 1;
    /* It goes on elsewhere. */
    jump = (intptr_t)code + 8;
    selector = BLOCK;
    int elsewhere = call();
    selector = ALLOW;
    jump = 0;
    wrong += elsewhere != 42 || hits != 2;
    /* Without a selector every call from outside of the range is dispatched. */
    answer = -1;
    MUST(dispatch(OFF, 0, 0));
    return (void *)(intptr_t)wrong;
}

static int ends(void (*how)(void))
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        how();
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) != child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

static void bad_selector(void)
{
    dispatch(ON, 0, 0);
    selector = 7;
    getppid();
}

static void no_memory(void)
{
    prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, 0, 0, 4096);
    getppid();
}

static void blocked_signal(void)
{
    sigset_t set;
    sigfillset(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    dispatch(ON, 0, 0);
    selector = BLOCK;
    getppid();
}

static void no_handler(void)
{
    signal(SIGSYS, SIG_IGN);
    dispatch(ON, 0, 0);
    selector = BLOCK;
    getppid();
}

static void not_inherited(void)
{
    hits = 0;
    selector = BLOCK;
    getppid();
    _exit(hits);
}

static int fails(unsigned long mode, unsigned long start, unsigned long length, unsigned long byte)
{
    return prctl(PR_SET_SYSCALL_USER_DISPATCH, mode, start, length, byte) == 0 ? 0 : errno;
}

static void errors(const char *when)
{
    char name[60];
    int got[] = {fails(OFF, 1, 0, 0), fails(OFF, 0, 1, 0), fails(OFF, 0, 0, 1), fails(77, 0, 0, 0),
                 fails(ON, 4096, 0, 0), fails(ON, 4096, -4096UL, 0), fails(ON, 0, 0, 1UL << 63)};
    int want[] = {EINVAL, EINVAL, EINVAL, EINVAL, EINVAL, EINVAL, EFAULT};
    for (unsigned i = 0; i < sizeof got / sizeof *got; i++) {
        snprintf(name, sizeof name, "error_%u_%s", i, when);
        check(name, got[i] == want[i], "%d", got[i]);
    }
}

static void all(const char *when)
{
    char name[60];
#define NAMED(what) (snprintf(name, sizeof name, "%s_%s", what, when), name)
    errors(when);
    void *bad = dispatches(NULL);
    check(NAMED("calls"), bad == NULL, "%ld wrong", (long)bad);
    bad = in_code(NULL);
    check(NAMED("code"), bad == NULL, "%ld wrong", (long)bad);
    int signal = ends(bad_selector);
    check(NAMED("bad_selector"), signal == SIGSYS, "%d", signal);
    signal = ends(no_memory);
    check(NAMED("no_memory"), signal == SIGSEGV, "%d", signal);
    signal = ends(blocked_signal);
    check(NAMED("blocked_signal"), signal == SIGSYS, "%d", signal);
    signal = ends(no_handler);
    check(NAMED("no_handler"), signal == SIGSYS, "%d", signal);
    MUST(dispatch(ON, 0, 0));
    signal = ends(not_inherited);
    check(NAMED("not_inherited"), signal == 0, "%d", signal);
    pthread_t heir;
    void *heirs;
    MUST(pthread_create(&heir, NULL, does_not, NULL));
    MUST(pthread_join(heir, &heirs));
    check(NAMED("not_by_threads"), heirs == NULL, "%ld", (long)heirs);
    MUST(dispatch(OFF, 0, 0));
}

/* A thread with a nice value of its own. */
static void *has_its_own(void *unused)
{
    (void)unused;
    MUST(setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 3));
    long bad = (long)dispatches(NULL);
    bad += (long)in_code(NULL);
    bad += fails(OFF, 1, 0, 0) != EINVAL;
    bad += fails(ON, 4096, 0, 0) != EINVAL;
    return (void *)bad;
}

int main(void)
{
    if (prctl(PR_SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, 0) != 0) {
        fprintf(stderr, "skipped: own_user_dispatch: the kernel has no Syscall User Dispatch\n");
        printf("ok nothing\n");
        return 0;
    }
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGSYS, &action, NULL));
    all("first");
    pthread_t threads[2 * THREADS];
    long bad = 0;
    for (int i = 0; i < 2 * THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, i % 2 ? does_not : dispatches, NULL));
    for (int i = 0; i < 2 * THREADS; i++) {
        void *result;
        MUST(pthread_join(threads[i], &result));
        bad += (long)result;
    }
    check("threads", bad == 0, "%ld wrong", bad);
    all("again");
    pthread_t own;
    void *result;
    MUST(pthread_create(&own, NULL, has_its_own, NULL));
    MUST(pthread_join(own, &result));
    check("with_its_own_kernel_thread", result == NULL, "%ld wrong", (long)result);
    return verdict();
}
