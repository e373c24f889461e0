/* A filter of the program's traps (or refuses) one system call that the program itself does not make, and one that
 * it makes. Its handler is called for the latter and for nothing else; threads, waits, sleeps and signals go on.
 * Arguments: the call's number, `before` or `after` the first thread, and `trap` or an error number. */
#include "case.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>

enum { THREADS = 4, ROUNDS = 20 };

static atomic_int traps, strange, wrong, interrupted, stop;
static int pipes[THREADS][2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int turn;

static void on_trap(int signal, siginfo_t *information, void *context)
{
    ucontext_t *frame = context;
    (void)signal;
    if (information->si_syscall != SYS_getpriority) {
        strange = information->si_syscall;
        return;
    }
    atomic_fetch_add(&traps, 1);
    frame->uc_mcontext.gregs[REG_RAX] = 1000 + frame->uc_mcontext.gregs[REG_RDI];
}

static void on_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&interrupted, 1);
}

static void *body(void *argument)
{
    long number = (long)argument;
    for (int round = 0; round < ROUNDS; round++) {
        char byte = (char)round;
        wrong += syscall(SYS_getpriority, number, 0) != 1000 + number;
        wrong += write(pipes[(number + 1) % THREADS][1], &byte, 1) != 1;
        wrong += read(pipes[number][0], &byte, 1) != 1 || byte != (char)round;
        pthread_mutex_lock(&mutex);
        while (turn % THREADS != number)
            pthread_cond_wait(&condition, &mutex);
        turn++;
        pthread_cond_broadcast(&condition);
        pthread_mutex_unlock(&mutex);
        usleep(200);
        for (volatile int i = 0; i < 100000; i++) {
        }
        sched_yield();
    }
    return NULL;
}

static void *idler(void *unused)
{
    (void)unused;
    while (!stop)
        usleep(1000);
    return NULL;
}

static void install(int number, const char *answer)
{
    unsigned action = strcmp(answer, "trap") == 0 ? SECCOMP_RET_TRAP : SECCOMP_RET_ERRNO | (unsigned)atoi(answer);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpriority, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
}

int main(int count, char **words)
{
    MUST(count != 4);
    // With a buffer of its own the C library does not ask what stdout is: from 2.39 on by fstat(2).
    static char buffer[BUFSIZ];
    MUST(setvbuf(stdout, buffer, _IOFBF, sizeof buffer));
    int before = strcmp(words[2], "before") == 0;
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    MUST(sigaction(SIGSYS, &action, NULL));
    struct sigaction interrupts = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &interrupts, NULL));
    for (int i = 0; i < THREADS; i++)
        MUST(pipe(pipes[i]));
    pthread_t idle, threads[THREADS];
    if (!before)
        MUST(pthread_create(&idle, NULL, idler, NULL));
    install(atoi(words[1]), words[3]);
    if (before)
        MUST(pthread_create(&idle, NULL, idler, NULL));
    for (long i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, body, (void *)i));
    for (int i = 0; i < 20; i++) {
        int now_count = interrupted;
        MUST(pthread_kill(idle, SIGUSR1));
        while (interrupted == now_count)
            sched_yield();
    }
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL));
    stop = 1;
    MUST(pthread_join(idle, NULL));
    wrong += syscall(SYS_getpriority, 7, 0) != 1007;
    check("own", traps == THREADS * ROUNDS + 1, "%d traps", (int)traps);
    check("none_but_own", strange == 0, "call %d", (int)strange);
    check("answers", wrong == 0, "%d wrong", (int)wrong);
    struct sigaction now_action;
    MUST(sigaction(SIGSYS, NULL, &now_action));
    check("action_kept", now_action.sa_sigaction == on_trap, "another one");
    return verdict();
}
