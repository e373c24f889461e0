/* A seccomp filter forbids Syscall User Dispatch after code made at run time has come. What that code
 * calls afterwards is served all the same: threads wait in it, and end by it. A thread may be refused
 * once. A child creates threads, too. */
#include "case.h"
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

typedef long call(long number, long a, long b, long c);

/* mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; mov %rcx,%rdx; xor %r10d,%r10d; syscall; ret */
static const unsigned char code[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89,
                                     0xca, 0x45, 0x31, 0xd2, 0x0f, 0x05, 0xc3};

enum { THREADS = 8, ROUNDS = 50 };

static call *enter;
static unsigned turn;
static atomic_int wrong_id, refused;

static pthread_t begin(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    int answer;
    while ((answer = pthread_create(&thread, NULL, body, argument)) == EAGAIN && refused < 2)
        atomic_fetch_add(&refused, 1);
    MUST(answer);
    return thread;
}

static void *ends_by_it(void *number)
{
    for (int round = 0; round < ROUNDS; round++) {
        unsigned now_turn;
        while ((now_turn = __atomic_load_n(&turn, __ATOMIC_ACQUIRE)) % THREADS != (unsigned)(long)number)
            enter(SYS_futex, (long)&turn, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, now_turn);
        if (enter(SYS_gettid, 0, 0, 0) != gettid())
            atomic_fetch_add(&wrong_id, 1);
        __atomic_fetch_add(&turn, 1, __ATOMIC_RELEASE);
        enter(SYS_futex, (long)&turn, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, THREADS);
    }
    enter(SYS_exit, 0, 0, 0);
    return NULL;
}

static void *counts(void *word)
{
    atomic_fetch_add((atomic_int *)word, 1);
    return word;
}

int main(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(page == MAP_FAILED);
    memcpy(page, code, sizeof code);
    enter = (call *)page;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SYSCALL_USER_DISPATCH, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));

    pid_t child = fork();
    if (child == 0) {
        atomic_int count = 0;
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            threads[i] = begin(counts, &count);
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        _exit(count == THREADS && refused == 0 ? 7 : 8);
    }
    int status = 0;
    check("child", waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7,
          "status %x", status);

    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        threads[i] = begin(ends_by_it, (void *)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("turns", turn == THREADS * ROUNDS, "%u", turn);
    check("ids", wrong_id == 0, "%d", (int)wrong_id);
    check("refused_once", refused <= 1, "%d", (int)refused);
    return verdict();
}
