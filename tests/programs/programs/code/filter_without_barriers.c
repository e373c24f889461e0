/* A filter for all threads ends the process for a call that no thread makes natively: membarrier(2). Threads that yield, compute,
 * sleep and touch new memory go on, as many are stopped and replaced as before. */
#include "case.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { ROUNDS = 160, PAGE = 4096, THREADS = 6 };

static volatile int go_on = 1;
static long done[THREADS];

static void *works(void *which)
{
    long me = (long)which;
    while (go_on || done[me] < ROUNDS) {
        if (me < 2) {
            sched_yield();
        } else if (me < 4) {
            for (volatile int step = 0; step < 20000; step++) {
            }
        } else {
            struct timespec moment = {0, 100000};
            nanosleep(&moment, NULL);
            char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            page[0] = 1;
            munmap(page, PAGE);
        }
        __atomic_fetch_add(&done[me], 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void await(long rounds)
{
    for (int thread = 0; thread < THREADS; thread++) {
        while (__atomic_load_n(&done[thread], __ATOMIC_RELAXED) < rounds) {
            struct timespec moment = {0, 1000000};
            nanosleep(&moment, NULL);
        }
    }
}

int main(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    pthread_t threads[THREADS];
    for (long thread = 0; thread < THREADS; thread++) {
        threads[thread] = start(works, (void *)thread);
    }
    await(ROUNDS / 4);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
    await(ROUNDS);
    go_on = 0;
    for (int thread = 0; thread < THREADS; thread++) {
        join(threads[thread]);
    }
    check("goes_on", 1, "");
    return verdict();
}
