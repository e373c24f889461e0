/* Code made at run time calls the kernel: futexes between four threads and libc, sleeping, ids,
 * fork, signals and masks from there. */
#include "case.h"
#include <linux/futex.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

typedef long call(long number, long a, long b, long c, long d, long e, long f);

/* mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; mov %rcx,%rdx; mov %r8,%r10; mov %r9,%r8;
 * mov 8(%rsp),%r9; syscall; ret */
static const unsigned char code[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48,
                                     0x89, 0xca, 0x4d, 0x89, 0xc2, 0x4d, 0x89, 0xc8, 0x4c, 0x8b,
                                     0x4c, 0x24, 0x08, 0x0f, 0x05, 0xc3};

static call *enter;
static unsigned turn, go;
static atomic_int rounds, wrong_id, bad_sleep;
static sem_t ended;

enum { THREADS = 4, ROUNDS = 100 };

static void wait_while(unsigned *word, unsigned value)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
        enter(SYS_futex, (long)word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, 0, 0, 0);
}

static void *body(void *number)
{
    unsigned self = (unsigned)(long)number;
    wait_while(&go, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned now_turn;
        while ((now_turn = __atomic_load_n(&turn, __ATOMIC_ACQUIRE)) % THREADS != self)
            wait_while(&turn, now_turn);
        if (enter(SYS_gettid, 0, 0, 0, 0, 0, 0) != gettid())
            atomic_fetch_add(&wrong_id, 1);
        atomic_fetch_add(&rounds, 1);
        __atomic_fetch_add(&turn, 1, __ATOMIC_RELEASE);
        enter(SYS_futex, (long)&turn, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, THREADS, 0, 0, 0);
    }
    struct timespec brief = {0, 2000000};
    long long before = now(CLOCK_MONOTONIC);
    if (enter(SYS_nanosleep, (long)&brief, 0, 0, 0, 0, 0) != 0 ||
        now(CLOCK_MONOTONIC) - before < 2000000)
        atomic_fetch_add(&bad_sleep, 1);
    sem_post(&ended);
    return NULL;
}

static volatile sig_atomic_t handled;
static void handler(int signal) { handled = signal; }

static void masks(const char *when)
{
    char name[40];
    unsigned long set = 1ul << (SIGUSR1 - 1), before = 0, pending = 0;
    handled = 0;
    long answer = enter(SYS_rt_sigprocmask, SIG_BLOCK, (long)&set, (long)&before, 8, 0, 0);
    enter(SYS_tgkill, getpid(), gettid(), SIGUSR1, 0, 0, 0);
    enter(SYS_rt_sigpending, (long)&pending, 8, 0, 0, 0, 0);
    sigset_t seen;
    MUST(pthread_sigmask(SIG_BLOCK, NULL, &seen));
    int held = handled == 0;
    snprintf(name, sizeof name, "mask_set_by_it_%s", when);
    check(name, answer == 0 && held && (pending & set) && sigismember(&seen, SIGUSR1) == 1,
          "%ld, held %d, pending %lx", answer, held, pending);
    enter(SYS_rt_sigprocmask, SIG_SETMASK, (long)&before, 0, 8, 0, 0);
    snprintf(name, sizeof name, "mask_opened_by_it_%s", when);
    check(name, handled == SIGUSR1, "%d", (int)handled);
}

static void altstack(const char *when)
{
    char name[40];
    static char memory[65536];
    stack_t wanted = {.ss_sp = memory, .ss_size = sizeof memory}, found = {0};
    stack_t none = {.ss_flags = SS_DISABLE};
    long answer = enter(SYS_sigaltstack, (long)&wanted, 0, 0, 0, 0, 0);
    MUST(sigaltstack(NULL, &found));
    snprintf(name, sizeof name, "altstack_set_by_it_%s", when);
    check(name, answer == 0 && found.ss_sp == memory, "%ld, %p", answer, found.ss_sp);
    MUST(sigaltstack(&none, NULL));
}

static void children(const char *when)
{
    char name[40];
    int status = 0;
    long pid = enter(SYS_fork, 0, 0, 0, 0, 0, 0);
    if (pid == 0)
        enter(SYS_exit_group, enter(SYS_getpid, 0, 0, 0, 0, 0, 0) == getpid() ? 7 : 8, 0, 0, 0, 0, 0);
    snprintf(name, sizeof name, "fork_by_it_%s", when);
    check(name, waitpid((pid_t)pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7,
          "%ld, status %x", pid, status);
    pid = fork();
    if (pid == 0) {
        /* The child has threads of its own. */
        go = turn = 0;
        rounds = 0;
        pthread_t threads[THREADS];
        for (long i = 0; i < THREADS; i++)
            threads[i] = start(body, (void *)i);
        __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
        enter(SYS_futex, (long)&go, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, THREADS, 0, 0, 0);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        _exit(rounds == THREADS * ROUNDS ? 9 : 10);
    }
    snprintf(name, sizeof name, "threads_of_child_%s", when);
    check(name, waitpid((pid_t)pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 9,
          "status %x", status);
}

int main(void)
{
    MUST(sem_init(&ended, 0, 0));
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL));
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    MUST(page == MAP_FAILED);
    memcpy(page, code, sizeof code);
    __builtin___clear_cache(page, (char *)page + sizeof code);
    enter = (call *)page;

    check("alone", enter(SYS_getpid, 0, 0, 0, 0, 0, 0) == getpid(), "another id");
    masks("alone");
    altstack("alone");
    children("alone");

    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(body, (void *)i);
    settle();
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    /* libc's instruction wakes who waits in the page's. */
    syscall(SYS_futex, &go, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, THREADS, NULL, NULL, 0);
    for (int i = 0; i < THREADS; i++)
        MUST(sem_wait(&ended));
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("rounds", rounds == THREADS * ROUNDS, "%d", rounds);
    check("ids", wrong_id == 0, "%d", wrong_id);
    check("sleeps", bad_sleep == 0, "%d", bad_sleep);
    masks("threaded");
    altstack("threaded");
    children("threaded");

    /* Made executable later, as careful compilers do. */
    void *later = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(later == MAP_FAILED);
    memcpy(later, code, sizeof code);
    MUST(mprotect(later, 4096, PROT_READ | PROT_EXEC));
    check("made_executable", ((call *)later)(SYS_gettid, 0, 0, 0, 0, 0, 0) == gettid(), "another id");
    return verdict();
}
