/* A handler leaves a wait that had a signal mask of its own, by siglongjmp(3): the thread has its own mask again, and what
 * comes for it is not held back. */
#include "case.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/select.h>

static sigjmp_buf back;
static sigset_t most;
static atomic_int stage, got;
static int (*call)(void);
static int blocks;

static void leave(int signal) { (void)signal, siglongjmp(back, 1); }
static void count(int signal) { (void)signal, atomic_fetch_add(&got, 1); }

static int by_sigsuspend(void) { return sigsuspend(&most); }
static int by_ppoll(void) { return ppoll(NULL, 0, NULL, &most); }
static int by_pselect(void) { return pselect(0, NULL, NULL, NULL, NULL, &most); }

static void *waiter(void *unused)
{
    sigset_t block;
    sigemptyset(&block);
    sigaddset(&block, SIGUSR1);
    if (blocks) {
        MUST(pthread_sigmask(SIG_BLOCK, &block, NULL));
    }
    if (sigsetjmp(back, 1) == 0) {
        atomic_store(&stage, 1);
        call();
    }
    atomic_store(&stage, 2);
    long long limit = now(CLOCK_MONOTONIC) + 5000000000;
    while (atomic_load(&got) == 0 && now(CLOCK_MONOTONIC) < limit) {
        sched_yield();
    }
    return unused;
}

static void one(const char *name, int (*by)(void))
{
    call = by;
    atomic_store(&stage, 0);
    atomic_store(&got, 0);
    pthread_t thread = start(waiter, NULL);
    while (atomic_load(&stage) != 1) {
        sched_yield();
    }
    settle();
    MUST(pthread_kill(thread, SIGUSR1));
    while (atomic_load(&stage) != 2) {
        sched_yield();
    }
    MUST(pthread_kill(thread, SIGUSR2));
    join(thread);
    check(name, atomic_load(&got) == 1, "%d", atomic_load(&got));
}

int main(void)
{
    struct sigaction action = {.sa_handler = leave};
    MUST(sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = count;
    MUST(sigaction(SIGUSR2, &action, NULL));
    sigfillset(&most);
    sigdelset(&most, SIGUSR1);
    for (blocks = 0; blocks < 2; blocks++) {
        one("sigsuspend", by_sigsuspend);
        one("ppoll", by_ppoll);
        one("pselect", by_pselect);
    }
    return verdict();
}
