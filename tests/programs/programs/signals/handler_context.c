/* What a handler finds in its context, for profilers, garbage collectors and sandboxes: the instruction, the stack
 * pointer and the registers of its thread, in a loop that computes, in calls that wait, before there are threads;
 * and that what it changes there is what the thread goes on with. */
#include "case.h"
#include <dlfcn.h>
#include <poll.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/time.h>
#include <ucontext.h>

enum { ROUNDS = 200, THREADS = 4 };

/* A loop with a mark in a register of each kind; it ends with the sum of what handlers have put into rax. */
extern char loop_begins[], loop_ends[];
static volatile int stop;
long run_loop(volatile int *until, double mark);
__asm__(".text\n"
        ".globl run_loop\n"
        "run_loop:\n"
        "push %rbx\n push %r15\n"
        "mov $0x5eed, %ebx\n mov $0x7ee7, %r15d\n xor %eax, %eax\n"
        "loop_begins:\n"
        "1: add $1, %r15\n sub $1, %r15\n"
        "cmpl $0, (%rdi)\n je 1b\n"
        "loop_ends:\n"
        "pop %r15\n pop %rbx\n ret\n");

static const char *where(uintptr_t pc)
{
    static __thread char text[64];
    Dl_info info = {0};
    if (pc >= (uintptr_t)loop_begins && pc <= (uintptr_t)loop_ends)
        return "loop";
    if (dladdr((void *)pc, &info) == 0 || info.dli_fname == NULL)
        return "nowhere";
    const char *base = strrchr(info.dli_fname, '/');
    snprintf(text, sizeof text, "%s", base ? base + 1 : info.dli_fname);
    return strncmp(text, "libc.so", 7) == 0 ? "libc" : text;
}

struct seen {
    atomic_int handlers, right, on_stack, below, marks;
    char wrong[96];
};
static struct seen seen;
static const char *expected;
static _Atomic(char *) stack_low, stack_high;
static char alternate[1 << 16];

static void look(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    char here;
    ucontext_t *frame = context;
    greg_t *registers = frame->uc_mcontext.gregs;
    uintptr_t pc = registers[REG_RIP], sp = registers[REG_RSP];
    const char *at = where(pc);
    if (strcmp(at, expected) == 0)
        atomic_fetch_add(&seen.right, 1);
    else
        snprintf(seen.wrong, sizeof seen.wrong, "%s+%#lx", at, (unsigned long)pc);
    atomic_fetch_add(&seen.on_stack, (char *)sp > stack_low && (char *)sp < stack_high);
    int own = &here >= alternate && &here < alternate + sizeof alternate;
    atomic_fetch_add(&seen.below, own || (&here < (char *)sp && (char *)sp - &here < 32768));
    if (strcmp(at, "loop") == 0) {
        double mark;
        memcpy(&mark, &frame->uc_mcontext.fpregs->_xmm[0], sizeof mark);
        long counter = registers[REG_R15];
        atomic_fetch_add(&seen.marks, registers[REG_RBX] == 0x5eed && mark == 1.25 &&
                                          (counter == 0x7ee7 || counter == 0x7ee8));
    }
    atomic_fetch_add(&seen.handlers, 1);
}

static void handle(int signal, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    MUST(sigaction(signal, &action, NULL));
}

static void note_stack(void)
{
    pthread_attr_t attributes;
    void *low;
    size_t size;
    MUST(pthread_getattr_np(pthread_self(), &attributes));
    MUST(pthread_attr_getstack(&attributes, &low, &size));
    stack_low = low;
    stack_high = (char *)low + size;
    pthread_attr_destroy(&attributes);
}

static atomic_int ready;

static void *computes(void *alt)
{
    if (alt) {
        stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
        MUST(sigaltstack(&stack, NULL));
    }
    note_stack();
    atomic_store(&ready, 1);
    run_loop(&stop, 1.25);
    return NULL;
}

/* `count` signals, one after the other. */
static void signal_often(pthread_t thread, int count)
{
    memset(&seen, 0, sizeof seen);
    for (int i = 0; i < count; i++) {
        MUST(pthread_kill(thread, SIGUSR2));
        while (atomic_load(&seen.handlers) == i)
            usleep(200);
    }
}

static void report(const char *name, int count)
{
    check(name, seen.right == count && seen.on_stack == count && seen.below == count,
          "of %d: %d at the right place, %d with its stack, %d below it; one at %s", count, seen.right,
          seen.on_stack, seen.below, seen.wrong);
}

static void compute(const char *name, int flags)
{
    handle(SIGUSR2, look, SA_RESTART | flags);
    expected = "loop";
    stop = 0, ready = 0;
    pthread_t thread = start(computes, flags ? alternate : NULL);
    while (!atomic_load(&ready))
        usleep(1000);
    settle();
    signal_often(thread, ROUNDS);
    report(name, ROUNDS);
    char marks[64];
    snprintf(marks, sizeof marks, "%s_registers", name);
    check(marks, seen.marks == ROUNDS, "%d of %d", seen.marks, ROUNDS);
    stop = 1;
    join(thread);
}

/* Calls that wait. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int ends[2];
static atomic_int over;

static void wait_mutex(void) { pthread_mutex_lock(&mutex), pthread_mutex_unlock(&mutex); }
static void wait_condition(void)
{
    pthread_mutex_lock(&other);
    while (!over)
        pthread_cond_wait(&condition, &other);
    pthread_mutex_unlock(&other);
}
static void wait_semaphore(void)
{
    while (sem_wait(&semaphore) != 0) {
    }
}
static void wait_sleep(void)
{
    while (!over)
        usleep(1000 * 1000);
}
static void wait_read(void)
{
    char byte;
    while (read(ends[0], &byte, 1) != 1) {
    }
}
static void wait_poll(void)
{
    struct pollfd one = {.fd = ends[0], .events = POLLIN};
    while (poll(&one, 1, -1) != 1) {
    }
    wait_read();
}
static void wait_suspended(void)
{
    sigset_t none;
    sigemptyset(&none);
    while (!over)
        sigsuspend(&none);
}

static void *waits(void *wait)
{
    note_stack();
    atomic_store(&ready, 1);
    ((void (*)(void))wait)();
    return NULL;
}

static void wait_in(const char *name, void (*wait)(void))
{
    enum { COUNT = 20 };
    char full[64];
    expected = "libc";
    ready = 0;
    over = 0;
    pthread_mutex_lock(&mutex);
    pthread_t thread = start(waits, wait);
    while (!atomic_load(&ready))
        usleep(1000);
    settle();
    settle();
    signal_often(thread, COUNT);
    snprintf(full, sizeof full, "parked_in_%s", name);
    report(full, COUNT);
    pthread_mutex_lock(&other);
    over = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&other);
    pthread_mutex_unlock(&mutex);
    sem_post(&semaphore);
    if (wait == wait_read || wait == wait_poll)
        MUST(write(ends[1], "", 1) != 1);
    pthread_kill(thread, SIGUSR2);
    join(thread);
    while (sem_trywait(&semaphore) == 0) {
    }
}

/* What a handler changes. */
static void leave_loop(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    ucontext_t *frame = context;
    greg_t *registers = frame->uc_mcontext.gregs;
    double mark = 2.5;
    if (registers[REG_RIP] < (greg_t)loop_begins || registers[REG_RIP] > (greg_t)loop_ends)
        return;
    registers[REG_RIP] = (greg_t)loop_ends;
    registers[REG_RAX] = 4711;
    memcpy(&frame->uc_mcontext.fpregs->_xmm[0], &mark, sizeof mark);
    sigaddset(&frame->uc_sigmask, SIGHUP);
}

static void *redirected(void *unused)
{
    volatile int never = 0;
    double mark;
    atomic_store(&ready, 1);
    long answer = run_loop(&never, 1.25);
    __asm__ volatile("movsd %%xmm0, %0" : "=m"(mark));
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    check("changed_rip_and_rax", answer == 4711, "%ld", answer);
    check("changed_xmm", mark == 2.5, "%f", mark);
    check("changed_mask", sigismember(&mask, SIGHUP), "it is not");
    return unused;
}

static sigjmp_buf back;
static void jump(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info, (void)context;
    siglongjmp(back, 1);
}

static void *jumps(void *unused)
{
    volatile int never = 0, times = 0;
    if (sigsetjmp(back, 1) != 0)
        times++;
    atomic_store(&ready, times + 1);
    if (times < 50)
        run_loop(&never, 1.25);
    check("siglongjmp", times == 50, "%d", times);
    return unused;
}

/* Handlers that interrupt each other, in the order of the kernel: the last one that begins is the first to end. */
static atomic_int order[3], begun;
static void nested(int signal, siginfo_t *info, void *context)
{
    (void)info;
    uintptr_t pc = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    int at = atomic_fetch_add(&begun, 1);
    if (at < 3)
        order[at] = signal | (strcmp(where(pc), "loop") == 0) << 8;
}

static void *blocks(void *unused)
{
    sigset_t three;
    sigemptyset(&three);
    sigaddset(&three, SIGUSR1), sigaddset(&three, SIGUSR2), sigaddset(&three, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &three, NULL);
    atomic_store(&ready, 1);
    while (atomic_load(&ready) == 1)
        usleep(1000);
    pthread_sigmask(SIG_UNBLOCK, &three, NULL);
    return unused;
}

/* A profiler. */
static atomic_long samples, in_loop, in_runtime;
static void sample(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    const char *at = where(((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]);
    atomic_fetch_add(&samples, 1);
    atomic_fetch_add(&in_loop, strcmp(at, "loop") == 0);
    atomic_fetch_add(&in_runtime, strncmp(at, "libupcall", 9) == 0);
}

int main(void)
{
    MUST(pipe(ends));
    MUST(sem_init(&semaphore, 0, 0));
    where((uintptr_t)main);
    /* Before there are threads. */
    handle(SIGALRM, look, 0);
    note_stack();
    expected = "libc";
    for (int i = 0; i < 5; i++) {
        struct itimerval soon = {.it_value = {.tv_usec = 5000}};
        MUST(setitimer(ITIMER_REAL, &soon, NULL));
        pause();
    }
    report("before_threads_in_a_call", 5);
    memset(&seen, 0, sizeof seen);
    for (int i = 0; i < 5; i++)
        raise(SIGALRM);
    report("before_threads_raised", 5);

    compute("computes", 0);
    compute("computes_onstack", SA_ONSTACK);

    handle(SIGUSR2, look, SA_RESTART);
    wait_in("mutex", wait_mutex);
    wait_in("condition", wait_condition);
    wait_in("semaphore", wait_semaphore);
    wait_in("sleep", wait_sleep);
    wait_in("read", wait_read);
    wait_in("poll", wait_poll);
    wait_in("sigsuspend", wait_suspended);

    handle(SIGUSR2, leave_loop, 0);
    ready = 0;
    pthread_t thread = start(redirected, NULL);
    while (!atomic_load(&ready))
        usleep(1000);
    settle();
    MUST(pthread_kill(thread, SIGUSR2));
    join(thread);

    handle(SIGUSR2, jump, 0);
    ready = 0;
    thread = start(jumps, NULL);
    for (int i = 0; i < 50; i++) {
        while (atomic_load(&ready) != i + 1)
            usleep(200);
        MUST(pthread_kill(thread, SIGUSR2));
    }
    join(thread);

    handle(SIGUSR1, nested, 0), handle(SIGUSR2, nested, 0), handle(SIGTERM, nested, 0);
    ready = 0;
    thread = start(blocks, NULL);
    while (!atomic_load(&ready))
        usleep(1000);
    MUST(pthread_kill(thread, SIGTERM) | pthread_kill(thread, SIGUSR2) | pthread_kill(thread, SIGUSR1));
    atomic_store(&ready, 2);
    join(thread);
    check("all_of_three", begun == 3, "%d", begun);

    /* More threads than processors, which migrate; each is sampled. */
    handle(SIGPROF, sample, SA_RESTART);
    stop = 0;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(computes, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_PROF, &often, NULL));
    /* Signals that come while one is pending are lost on a busy machine. */
    for (int i = 0; i < 200 || samples <= 200; i++) {
        pthread_kill(threads[i % THREADS], SIGPROF);
        usleep(3000);
    }
    MUST(setitimer(ITIMER_PROF, &never, NULL));
    long all = samples, loop = in_loop, runtime = in_runtime;
    /* One that comes before its thread is in the loop, or meets the sleep of this thread, is right as well. The few
     * instructions before a system call and after it may be seen as what they are. */
    check("profile", loop * 2 > all && runtime * 100 < all,
          "%ld samples, %ld in the loop, %ld in the runtime", all, loop, runtime);
    stop = 1;
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    return verdict();
}
