/* A process that has done something else first can have threads all the same: in a handler that has interrupted a system
 * call, after a filter, with other rights, under another root, with less memory, beside a process that shares its memory,
 * after children, with libraries and code that came and went. Each case is a child of its own with one thread; two more
 * of each have made code at run time before, and have called the kernel some times since. */
#include "case.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

static int ends[2];

/* Waits for bytes, sleeps, and waits for others: calls of all kinds. */
static void *thread(void *word)
{
    char byte;
    struct timespec moment = {0, 1000000};
    int pipes[2];
    MUST(pipe(pipes));
    MUST(nanosleep(&moment, NULL));
    MUST(write(pipes[1], "x", 1) != 1);
    MUST(read(pipes[0], &byte, 1) != 1);
    MUST(close(pipes[0]) | close(pipes[1]));
    *(int *)word += byte == 'x';
    return word;
}

static int has_threads(void)
{
    pthread_t threads[3];
    int words[3] = {0};
    for (int i = 0; i < 3; i++)
        MUST(pthread_create(&threads[i], NULL, thread, &words[i]));
    for (int i = 0; i < 3; i++)
        MUST(pthread_join(threads[i], NULL));
    return words[0] + words[1] + words[2] == 3;
}

static volatile sig_atomic_t in_handler;

static void makes_threads(int signal)
{
    (void)signal;
    in_handler = has_threads();
    if (ends[1] >= 0)
        MUST(write(ends[1], "later", 5) != 5);
}

/* The handler interrupts a read(2), which goes on behind it if it is made again. */
static int in_a_handler(int flags)
{
    struct sigaction action = {.sa_handler = makes_threads, .sa_flags = flags};
    char bytes[8];
    MUST(pipe(ends));
    MUST(sigaction(SIGALRM, &action, NULL));
    ualarm(100000, 0);
    ssize_t got = read(ends[0], bytes, sizeof bytes);
    if (got == -1 && errno == EINTR && flags == 0)
        got = read(ends[0], bytes, sizeof bytes);
    return in_handler && got == 5 && memcmp(bytes, "later", 5) == 0 && has_threads();
}

static int in_handler_again(void) { return in_a_handler(SA_RESTART); }
static int in_handler_once(void) { return in_a_handler(0); }

static int waits(void)
{
    /* Not read(2): a wait that is never made again. */
    struct sigaction action = {.sa_handler = makes_threads};
    sigset_t none;
    ends[1] = -1;
    MUST(sigaction(SIGALRM, &action, NULL));
    sigemptyset(&none);
    sigaddset(&none, SIGALRM);
    MUST(sigprocmask(SIG_BLOCK, &none, NULL));
    sigemptyset(&none);
    ualarm(100000, 0);
    return sigsuspend(&none) == -1 && errno == EINTR && in_handler && has_threads();
}

/* Forbids executable memory from now on, by a filter. */
static int after_filter(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0));
    return has_threads();
}

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

/* Linux 6.3 and newer; on others nothing is different. */
static int after_denying_execution(void)
{
    prctl(PR_SET_MDWE, 1L, 0L, 0L, 0L);
    return has_threads();
}

static int undumpable(void)
{
    MUST(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    return has_threads();
}

/* Root alone may; others try. */
static int with_other_rights(void)
{
    if (setresgid(65534, 65534, 65534) == 0)
        MUST(setresuid(65534, 65534, 65534));
    return has_threads();
}

static int under_another_root(void)
{
    if (chroot("/proc/self") == 0)
        MUST(chdir("/"));
    return has_threads();
}

static int in_another_namespace(void)
{
    (void)!unshare(CLONE_NEWNS);
    return has_threads();
}

static int with_less_memory(void)
{
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_AS, &limit));
    limit.rlim_cur = (rlim_t)1 << 30;
    MUST(setrlimit(RLIMIT_AS, &limit));
    return has_threads();
}

/* Linux 6.10 and newer: nobody changes libc's code again. */
static int with_sealed_code(void)
{
    unsigned long page = (unsigned long)&getppid & ~4095UL;
    syscall(462, page, 4096, 0);
    return has_threads();
}

static int shares(void *word)
{
    char byte;
    MUST(read(ends[0], &byte, 1) != 1);
    *(volatile int *)word = 1;
    return 0;
}

static int beside_a_process_on_its_memory(void)
{
    static char stack[1 << 16] __attribute__((aligned(64)));
    volatile int word = 0;
    int status;
    MUST(pipe(ends));
    pid_t child = clone(shares, stack + sizeof stack, CLONE_VM | SIGCHLD, (void *)&word);
    int threads = has_threads();
    MUST(write(ends[1], "x", 1) != 1);
    MUST(waitpid(child, &status, 0) != child);
    return threads && word == 1 && status == 0;
}

static int after_children(void)
{
    char *words[] = {"true", NULL};
    pid_t child;
    int status;
    MUST(posix_spawnp(&child, "true", NULL, NULL, words, environ));
    MUST(waitpid(child, &status, 0) != child || status != 0);
    if ((child = vfork()) == 0) {
        execvp("true", words);
        _exit(1);
    }
    MUST(waitpid(child, &status, 0) != child || status != 0);
    if ((child = fork()) == 0)
        _exit(!has_threads());
    MUST(waitpid(child, &status, 0) != child || status != 0);
    return has_threads();
}

static int after_libraries(void)
{
    void *stays = dlopen("libm.so.6", RTLD_NOW), *gone = dlopen("libutil.so.1", RTLD_NOW);
    MUST(stays == NULL);
    if (gone != NULL)
        MUST(dlclose(gone));
    return has_threads() && dlsym(stays, "cos") != NULL;
}

static long (*made)(void);

/* Code made at run time, which asks for the process's id. */
static int makes_code(void)
{
    unsigned char code[] = {0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3};
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at == MAP_FAILED);
    memcpy(at, code, sizeof code);
    MUST(mprotect(at, 4096, PROT_READ | PROT_EXEC));
    made = (long (*)(void))at;
    return made() == getpid();
}

static int after_code_at_run_time(void) { return makes_code() && has_threads() && made() == getpid(); }

/* So many calls of several kinds. */
static int calls(int count)
{
    int right = 1;
    sigset_t one, before;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR2);
    for (int i = 0; i < count; i += 5) {
        right &= getppid() == syscall(SYS_getppid);
        right &= sigprocmask(SIG_BLOCK, &one, &before) == 0 && sigismember(&before, SIGUSR2) == 0;
        right &= sigprocmask(SIG_SETMASK, &before, &one) == 0 && sigismember(&one, SIGUSR2) == 1;
        right &= close(-1) == -1 && errno == EBADF;
        if (made != NULL)
            right &= made() == getpid();
        sigemptyset(&one);
        sigaddset(&one, SIGUSR2);
    }
    return right;
}

static int after_many_calls(void) { return calls(400) && has_threads() && calls(20); }

static volatile sig_atomic_t called;

static void makes_calls(int signal)
{
    (void)signal;
    called = calls(400);
    MUST(write(ends[1], "later", 5) != 5);
}

static int after_many_calls_in_a_handler(void)
{
    struct sigaction action = {.sa_handler = makes_calls, .sa_flags = SA_RESTART};
    char bytes[8];
    MUST(pipe(ends));
    MUST(sigaction(SIGALRM, &action, NULL));
    ualarm(100000, 0);
    return read(ends[0], bytes, sizeof bytes) == 5 && called && has_threads();
}

static const struct {
    const char *name;
    int (*holds)(void);
} cases[] = {
    {"in_a_handler_whose_call_is_made_again", in_handler_again},
    {"in_a_handler_whose_call_ends", in_handler_once},
    {"in_a_handler_that_was_waited_for", waits},
    {"after_a_filter", after_filter},
    {"after_denying_execution", after_denying_execution},
    {"undumpable", undumpable},
    {"with_other_rights", with_other_rights},
    {"under_another_root", under_another_root},
    {"in_another_namespace", in_another_namespace},
    {"with_less_memory", with_less_memory},
    {"with_sealed_code", with_sealed_code},
    {"beside_a_process_on_its_memory", beside_a_process_on_its_memory},
    {"after_children", after_children},
    {"after_libraries", after_libraries},
    {"after_code_at_run_time", after_code_at_run_time},
    {"after_many_calls", after_many_calls},
    {"after_many_calls_in_a_handler", after_many_calls_in_a_handler},
};

/* Each alone, after code was made at run time, and after some calls more. */
enum { ALONE, WITH_CODE, WITH_CALLS, WAYS };

int main(void)
{
    static const char *const ways[] = {"", "_with_code", "_with_code_and_calls"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases * WAYS; i++) {
        char name[128];
        int way = (int)(i % WAYS), status = -1;
        pid_t child = fork();
        if (child == 0) {
            int right = way == ALONE || makes_code();
            if (way == WITH_CALLS)
                right &= calls(110);
            _exit(right && cases[i / WAYS].holds() ? 0 : 3);
        }
        MUST(child < 0 || waitpid(child, &status, 0) != child);
        snprintf(name, sizeof name, "%s%s", cases[i / WAYS].name, ways[way]);
        check(name, status == 0, "status %#x", status);
    }
    return verdict();
}
