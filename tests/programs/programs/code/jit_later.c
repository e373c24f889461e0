/* Code made at run time comes while threads are everywhere: computing, asleep, waiting for a lock,
 * a descriptor, a signal. It is used by all of them afterwards. */
#include "case.h"
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

typedef long call(long number, long a, long b, long c);

/* mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; mov %rcx,%rdx; xor %r10d,%r10d; syscall; ret */
static const unsigned char code[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89,
                                     0xca, 0x45, 0x31, 0xd2, 0x0f, 0x05, 0xc3};

static _Atomic(call *) enter;
static sem_t semaphore;
static int pipes[2];
static unsigned word;
static atomic_int arrived, met, wrong;

enum { KINDS = 5, EACH = 2, THREADS = KINDS * EACH };

static void *body(void *number)
{
    atomic_fetch_add(&arrived, 1);
    switch ((long)number % KINDS) {
    case 0:
        while (atomic_load(&enter) == NULL) {
        }
        break;
    case 1:
        while (atomic_load(&enter) == NULL)
            usleep(500);
        break;
    case 2:
        sem_wait(&semaphore);
        break;
    case 3: {
        char byte;
        if (read(pipes[0], &byte, 1) != 1)
            atomic_fetch_add(&wrong, 1);
        break;
    }
    default: {
        sigset_t set;
        int signal;
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        if (sigwait(&set, &signal) != 0 || signal != SIGUSR2)
            atomic_fetch_add(&wrong, 1);
    }
    }
    call *own = atomic_load(&enter);
    for (int i = 0; i < 20; i++)
        if (own(SYS_gettid, 0, 0, 0) != gettid())
            atomic_fetch_add(&wrong, 1);
    /* Half of them wait by it, and the last to come wakes them by libc's instruction. */
    if (atomic_fetch_add(&met, 1) + 1 == THREADS) {
        __atomic_store_n(&word, 1, __ATOMIC_RELEASE);
        syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, THREADS, NULL, NULL, 0);
    }
    while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0)
        own(SYS_futex, (long)&word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0);
    return NULL;
}

int main(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    MUST(sem_init(&semaphore, 0, 0));
    MUST(pipe(pipes));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(body, (void *)i);
    while (atomic_load(&arrived) < THREADS)
        sched_yield();
    settle();
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(page == MAP_FAILED);
    memcpy(page, code, sizeof code);
    MUST(mprotect(page, 4096, PROT_READ | PROT_EXEC));
    atomic_store(&enter, (call *)page);
    for (long i = 0; i < THREADS; i++) {
        if (i % KINDS == 2)
            sem_post(&semaphore);
        else if (i % KINDS == 3)
            MUST(write(pipes[1], "x", 1) != 1);
        else if (i % KINDS == 4)
            MUST(pthread_kill(threads[i], SIGUSR2));
    }
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("met", met == THREADS, "%d", met);
    check("answers", wrong == 0, "%d", wrong);
    return verdict();
}
