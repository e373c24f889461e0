/* A program that writes the GS base itself, as sandboxes do whose code reaches its memory by it: each thread's
 * value stays its own, through time slices, system calls, waits, signals, forks and executed programs. */
#include "case.h"
#include <asm/prctl.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 300 };

static uintptr_t get_base(void)
{
    uintptr_t base;
    __asm__ volatile("rdgsbase %0" : "=r"(base));
    return base;
}

static void set_base(uintptr_t base) { __asm__ volatile("wrgsbase %0" : : "r"(base) : "memory"); }

static int through_base(void)
{
    int value;
    __asm__ volatile("movl %%gs:8, %0" : "=r"(value));
    return value;
}

/* Memory in which a number can be found through the base. */
static uintptr_t room(int number)
{
    int *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 0xa5, 65536);
    memory[2] = number;
    return (uintptr_t)memory;
}

static int holds(uintptr_t base, int number) { return get_base() == base && through_base() == number; }

static void compute(int turns)
{
    for (volatile int i = 0; i < turns; i++) {
    }
}

/* Time slices, and the base taken back to what was there before, which another kernel thread may have read. */
static void *sandbox(void *argument)
{
    int number = (int)(intptr_t)argument;
    uintptr_t base = room(number);
    long wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uintptr_t before = get_base();
        set_base(base);
        compute(round % 10 == 0 ? 1000000 : 1000);
        wrong += !holds(base, number);
        if (round % 3 == 0)
            sched_yield();
        wrong += !holds(base, number);
        set_base(before);
        sched_yield();
        wrong += getpid() <= 0;
    }
    return (void *)wrong;
}

static int pipes[2][2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int turn;

/* Waits of every kind with a base of one's own. */
static void *waiter(void *argument)
{
    int number = (int)(intptr_t)argument;
    uintptr_t base = room(number);
    long wrong = 0;
    set_base(base);
    for (int round = 0; round < ROUNDS; round++) {
        char byte = (char)round;
        if (number == 0) {
            wrong += write(pipes[1][1], &byte, 1) != 1;
            wrong += !holds(base, number);
            wrong += read(pipes[0][0], &byte, 1) != 1;
        } else {
            wrong += read(pipes[1][0], &byte, 1) != 1;
            wrong += !holds(base, number);
            wrong += write(pipes[0][1], &byte, 1) != 1;
        }
        wrong += !holds(base, number) || byte != (char)round;
        pthread_mutex_lock(&mutex);
        while (turn % 2 != number)
            pthread_cond_wait(&condition, &mutex);
        turn++;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
        wrong += !holds(base, number);
        if (round % 50 == 0)
            usleep(1000);
        int file = open("/proc/self/stat", O_RDONLY);
        char text[64];
        wrong += read(file, text, sizeof text) <= 0;
        close(file);
        wrong += !holds(base, number);
    }
    return (void *)wrong;
}

static void run(const char *name, void *(*body)(void *), int threads)
{
    pthread_t ids[8];
    long wrong = 0;
    for (int i = 0; i < threads; i++)
        MUST(pthread_create(&ids[i], NULL, body, (void *)(intptr_t)i));
    for (int i = 0; i < threads; i++) {
        void *result;
        MUST(pthread_join(ids[i], &result));
        wrong += (long)result;
    }
    check(name, wrong == 0, "%ld times wrong", wrong);
}

static atomic_int handled, handled_wrong, goes_on, ready;
static uintptr_t target_base;

/* It waits in the handler: another kernel thread may go on with it. */
static void on_signal(int signal)
{
    int error = errno;
    (void)signal;
    atomic_fetch_add(&handled_wrong, !holds(target_base, 77));
    sched_yield();
    usleep(100);
    atomic_fetch_add(&handled_wrong, !holds(target_base, 77));
    atomic_fetch_add(&handled, 1);
    errno = error;
}

static void *target(void *argument)
{
    long wrong = 0;
    (void)argument;
    set_base(target_base);
    atomic_store(&ready, 1);
    while (atomic_load(&goes_on)) {
        compute(20000);
        wrong += !holds(target_base, 77);
        usleep(50);
        wrong += !holds(target_base, 77);
        sched_yield();
        wrong += !holds(target_base, 77);
    }
    return (void *)wrong;
}

static void signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    pthread_t id;
    void *wrong;
    MUST(sigaction(SIGUSR1, &action, NULL));
    target_base = room(77);
    atomic_store(&goes_on, 1);
    MUST(pthread_create(&id, NULL, target, NULL));
    while (!atomic_load(&ready))
        sched_yield();
    for (int i = 0; i < ROUNDS; i++) {
        int before = atomic_load(&handled);
        MUST(pthread_kill(id, SIGUSR1));
        while (atomic_load(&handled) == before)
            sched_yield();
    }
    atomic_store(&goes_on, 0);
    MUST(pthread_join(id, &wrong));
    check("handlers run with the base of what they interrupt", atomic_load(&handled_wrong) == 0, "%d times not",
          atomic_load(&handled_wrong));
    check("it is there after them", wrong == NULL, "%ld times not", (long)wrong);
}

static void change_base(int signal)
{
    (void)signal;
    set_base(target_base);
}

static void *changed(void *argument)
{
    (void)argument;
    set_base(0);
    raise(SIGUSR2);
    long wrong = !holds(target_base, 77);
    sched_yield();
    wrong += !holds(target_base, 77);
    set_base(room(5));
    raise(SIGUSR2);
    wrong += !holds(target_base, 77);
    usleep(100);
    wrong += !holds(target_base, 77);
    return (void *)wrong;
}

static void *by_call(void *argument)
{
    int number = 100 + (int)(intptr_t)argument;
    uintptr_t base = room(number), found = 1;
    long wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        wrong += syscall(SYS_arch_prctl, ARCH_SET_GS, base) != 0;
        wrong += !holds(base, number);
        sched_yield();
        compute(1000);
        wrong += !holds(base, number);
        wrong += syscall(SYS_arch_prctl, ARCH_GET_GS, &found) != 0 || found != base;
        wrong += syscall(SYS_arch_prctl, ARCH_SET_GS, 0) != 0;
        wrong += syscall(SYS_arch_prctl, ARCH_GET_GS, &found) != 0 || found != 0;
        wrong += syscall(SYS_arch_prctl, ARCH_GET_FS, &found) != 0 || found != (uintptr_t)pthread_self();
        wrong += syscall(SYS_arch_prctl, ARCH_SET_FS, found) != 0;
        sched_yield();
    }
    set_base(base);
    wrong += syscall(SYS_arch_prctl, ARCH_SET_GS, -4096L) != -1 || errno != EPERM || !holds(base, number);
    wrong += syscall(SYS_arch_prctl, ARCH_GET_GS, 8L) != -1 || errno != EFAULT || !holds(base, number);
    return (void *)wrong;
}

static void *heir(void *argument)
{
    long wrong = !holds((uintptr_t)argument, 9);
    sched_yield();
    return (void *)(wrong + !holds((uintptr_t)argument, 9));
}

static void *parent(void *argument)
{
    uintptr_t base = room(9);
    pthread_t id;
    void *wrong;
    (void)argument;
    set_base(base);
    MUST(pthread_create(&id, NULL, heir, (void *)base));
    MUST(pthread_join(id, &wrong));
    return (void *)((long)wrong + !holds(base, 9));
}

extern char **environ;

static void *forker(void *argument)
{
    int number = 20 + (int)(intptr_t)argument, status;
    uintptr_t base = room(number);
    long wrong = 0;
    char *words[] = {"true", NULL};
    set_base(base);
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        if (child == 0) {
            int bad = !holds(base, number);
            pthread_t id;
            void *result;
            bad += getppid() <= 0 || !holds(base, number);
            set_base(0);
            bad += pthread_create(&id, NULL, sandbox, (void *)3L) != 0 || pthread_join(id, &result) != 0 || result != NULL;
            set_base(base);
            sched_yield();
            bad += !holds(base, number);
            _exit(bad);
        }
        wrong += !holds(base, number) || waitpid(child, &status, 0) != child || status != 0;
        wrong += posix_spawnp(&child, "true", NULL, NULL, words, environ) != 0 || !holds(base, number);
        wrong += waitpid(child, &status, 0) != child || status != 0 || !holds(base, number);
        child = vfork();
        if (child == 0) {
            execvp("true", words);
            _exit(1);
        }
        wrong += !holds(base, number) || waitpid(child, &status, 0) != child || status != 0 || !holds(base, number);
    }
    return (void *)wrong;
}

static pid_t forked;

static void fork_there(int signal)
{
    (void)signal;
    forked = fork();
}

/* The child goes on where the signal has met its parent: in a wait, with a base of its own. */
static void *forks_in_handler(void *argument)
{
    uintptr_t base = room(31);
    struct timespec long_time = {.tv_sec = 0, .tv_nsec = 1000000};
    int status;
    (void)argument;
    set_base(base);
    raise(SIGHUP);
    if (forked == 0)
        _exit(!holds(base, 31));
    long wrong = !holds(base, 31) || waitpid(forked, &status, 0) != forked || status != 0;
    alarm(1);
    while (nanosleep(&long_time, NULL) == 0 || errno != EINTR) {
        long_time.tv_sec = 10;
    }
    if (forked == 0)
        _exit(!holds(base, 31));
    return (void *)(wrong + (!holds(base, 31) || waitpid(forked, &status, 0) != forked || status != 0));
}

/* mov eax, 39 (getpid); syscall; ret */
static const unsigned char CODE[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3};

static void *made_at_run_time(void *argument)
{
    int number = 50 + (int)(intptr_t)argument;
    uintptr_t base = room(number);
    unsigned char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long wrong = 0;
    memcpy(code, CODE, sizeof CODE);
    set_base(base);
    MUST(mprotect(code, 4096, PROT_READ | PROT_EXEC));
    wrong += !holds(base, number);
    for (int round = 0; round < ROUNDS; round++) {
        wrong += ((int (*)(void))code)() != getpid();
        wrong += !holds(base, number);
        uintptr_t before = get_base();
        set_base(0);
        wrong += ((int (*)(void))code)() != getpid();
        set_base(before);
        sched_yield();
        wrong += !holds(base, number);
    }
    return (void *)wrong;
}

int main(void)
{
    /* FSGSBASE: programs may write the register. */
    if ((getauxval(AT_HWCAP2) & 2) == 0) {
        fprintf(stderr, "skipped: own_gs_base: the kernel does not let programs write the GS base\n");
        printf("ok nothing\n");
        return 0;
    }
    uintptr_t base = room(1000);
    set_base(base);
    check("before threads", getpid() > 0 && holds(base, 1000), "base %#lx", (long)get_base());
    run("in sandboxes", sandbox, 6);
    check("of the first thread", holds(base, 1000), "base %#lx", (long)get_base());
    MUST(pipe(pipes[0]));
    MUST(pipe(pipes[1]));
    run("in waits", waiter, 2);
    signals();
    struct sigaction action = {.sa_handler = change_base};
    MUST(sigaction(SIGUSR2, &action, NULL));
    run("changed by handlers", changed, 4);
    run("by arch_prctl", by_call, 4);
    run("inherited by threads", parent, 4);
    run("kept by processes", forker, 3);
    action.sa_handler = fork_there;
    MUST(sigaction(SIGHUP, &action, NULL));
    MUST(sigaction(SIGALRM, &action, NULL));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    check("of the first thread, still", holds(base, 1000), "base %#lx", (long)get_base());
    run("calls of code made at run time", made_at_run_time, 4);
    MUST(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    void *wrong = forks_in_handler(NULL);
    check("kept by children of handlers", wrong == NULL, "%ld times not", (long)wrong);
    set_base(base);
    check("at the end", getpid() > 0 && holds(base, 1000), "base %#lx", (long)get_base());
    return verdict();
}
