/* Calls that wait with a signal mask of their own which blocks nearly everything: what it lets through comes, and what
 * it blocks waits for the end of the call, whatever number it has. And sets of signals to wait for that hold everything. */
#include "case.h"
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>

enum { ROUNDS = 15 };

static const int held[] = {SIGUSR2, SIGURG, SIGSYS, SIGSEGV, SIGBUS};
enum { HELD = sizeof held / sizeof *held };

static atomic_int through, early, late, waits, over;
static sigset_t most;
static int epoll, empty;

static void let_through(int signal) { (void)signal, atomic_fetch_add(&through, 1); }

static void hold_back(int signal)
{
    (void)signal;
    atomic_fetch_add(atomic_load(&through) == 0 ? &early : &late, 1);
}

static long by_sigsuspend(void) { return sigsuspend(&most); }
static long by_ppoll(void) { return ppoll(NULL, 0, NULL, &most); }
static long by_ppoll_time(void)
{
    struct timespec long_time = {1000, 0};
    struct pollfd one = {empty, POLLIN, 0};
    return ppoll(&one, 1, &long_time, &most);
}
static long by_pselect(void) { return pselect(0, NULL, NULL, NULL, NULL, &most); }
static long by_pselect_set(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(empty, &set);
    return pselect(empty + 1, &set, NULL, NULL, NULL, &most);
}
static long by_epoll_pwait(void)
{
    struct epoll_event event;
    return epoll_pwait(epoll, &event, 1, -1, &most);
}
static long by_epoll_pwait2(void)
{
    struct epoll_event event;
    return syscall(SYS_epoll_pwait2, epoll, &event, 1, NULL, &most, 8);
}
/* More descriptors than the runtime parks on. */
static long by_ppoll_many(void)
{
    struct pollfd many[100];
    for (int i = 0; i < 100; i++) {
        many[i] = (struct pollfd){empty, POLLIN, 0};
    }
    return ppoll(many, 100, NULL, &most);
}

static long (*call)(void);

static void *waiter(void *unused)
{
    (void)unused;
    long answer = 0;
    for (int i = 0; i < ROUNDS; i++) {
        sigset_t block, before;
        sigemptyset(&block);
        sigaddset(&block, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &block, &before);
        atomic_store(&waits, 1);
        while (atomic_load(&through) == 0) {
            answer += call() != -1 || errno != EINTR;
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        atomic_store(&waits, 2);
        while (atomic_load(&waits) == 2) {
            sched_yield();
        }
    }
    return (void *)answer;
}

static void one(const char *name, long (*by)(void), int settles)
{
    int too_early = 0, lost = 0;
    call = by;
    atomic_store(&through, 0);
    atomic_store(&waits, 0);
    pthread_t thread = start(waiter, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        while (atomic_load(&waits) != 1) {
            sched_yield();
        }
        atomic_store(&early, 0);
        atomic_store(&late, 0);
        if (settles && i < 3) {
            /* On a busy machine it takes a while until the thread is in its call. */
            for (int j = 0; j < 4; j++) {
                settle();
            }
            for (int j = 0; j < HELD; j++) {
                MUST(pthread_kill(thread, held[j]));
            }
            settle();
            too_early += early != 0;
        } else if (i % 2) {
            settle();
        }
        MUST(pthread_kill(thread, SIGUSR1));
        while (atomic_load(&waits) != 2) {
            sched_yield();
        }
        lost += settles && i < 3 && early + late != HELD;
        atomic_store(&through, 0);
        atomic_store(&waits, 3);
    }
    long wrong = (long)join(thread);
    check(name, wrong == 0 && too_early == 0 && lost == 0, "%ld answers, %d early, %d lost", wrong, too_early, lost);
}

static void *disturb(void *unused)
{
    while (!atomic_load(&over)) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        sched_yield();
    }
    return unused;
}

static void *takes(void *unused)
{
    sigset_t all;
    sigfillset(&all);
    MUST(pthread_sigmask(SIG_BLOCK, &all, NULL));
    atomic_store(&waits, 1);
    int good = 0;
    for (int i = 0; i < ROUNDS; i++) {
        siginfo_t information = {0};
        int signal = sigwaitinfo(&all, &information);
        good += signal == held[i % HELD] && information.si_code == SI_USER && information.si_pid == getpid();
        atomic_fetch_add(&waits, 1);
    }
    check("sigwaitinfo", good == ROUNDS, "%d", good);
    struct timespec none = {0, 1000};
    int phantoms = 0;
    for (int i = 0; i < 2000; i++) {
        phantoms += sigtimedwait(&all, NULL, &none) != -1;
    }
    check("sigtimedwait", phantoms == 0, "%d", phantoms);
    int descriptor = signalfd(-1, &all, SFD_NONBLOCK);
    struct signalfd_siginfo found = {0};
    for (int i = 0; i < 2000; i++) {
        phantoms += read(descriptor, &found, sizeof found) > 0;
        struct pollfd ready = {descriptor, POLLIN, 0};
        phantoms += poll(&ready, 1, 0) != 0;
    }
    check("signalfd", phantoms == 0, "%d, signal %d", phantoms, (int)found.ssi_signo);
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = let_through};
    int both[2];
    MUST(pipe(both));
    empty = both[0];
    epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, empty, &event));
    MUST(sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = hold_back;
    for (int i = 0; i < HELD; i++) {
        MUST(sigaction(held[i], &action, NULL));
    }
    sigfillset(&most);
    sigdelset(&most, SIGUSR1);
    for (int pass = 0; pass < 2; pass++) {
        one("sigsuspend", by_sigsuspend, 1);
        one("ppoll", by_ppoll, 1);
        one("ppoll_time", by_ppoll_time, 1);
        one("ppoll_many", by_ppoll_many, 1);
        one("pselect", by_pselect, 1);
        one("pselect_set", by_pselect_set, 1);
        one("epoll_pwait", by_epoll_pwait, 1);
        one("epoll_pwait2", by_epoll_pwait2, 1);
        if (pass == 0) {
            start(disturb, NULL);
        }
    }
    atomic_store(&waits, 0);
    pthread_t thread = start(takes, NULL);
    while (atomic_load(&waits) == 0) {
        sched_yield();
    }
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 3 == 0) {
            settle();
        }
        MUST(pthread_kill(thread, held[i % HELD]));
        while (atomic_load(&waits) != i + 2) {
            sched_yield();
        }
    }
    join(thread);
    atomic_store(&over, 1);
    return verdict();
}
