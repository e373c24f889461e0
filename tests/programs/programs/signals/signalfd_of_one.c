/* A descriptor of signalfd(2) gives what was sent to the thread that reads, by raise(3), pthread_kill(3) or
 * pthread_sigqueue(3), before or after the descriptor was made, and poll(2) and epoll_wait(2) tell of it. What was
 * sent so and is not read waits for the thread. A thread that accepts its signal handles it all the same. */
#include "case.h"
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum { ROUNDS = 300, IDLE = 3 };

static sigset_t one, real_time;
static pthread_t handled_by;
static atomic_int handled;

static void handle(int signal)
{
    (void)signal;
    handled_by = pthread_self();
    handled++;
}

static void *idle(void *unused)
{
    for (;;) {
        pause();
    }
    return unused;
}

static int made(const sigset_t *set)
{
    int descriptor = signalfd(-1, set, SFD_NONBLOCK | SFD_CLOEXEC);
    MUST(descriptor < 0 ? -1 : 0);
    return descriptor;
}

/* The signal that the descriptor gives, and the value that came with it; 0: none. */
static int given(int descriptor, int *value)
{
    struct signalfd_siginfo found = {0};
    if (read(descriptor, &found, sizeof found) != sizeof found || found.ssi_pid != (unsigned)getpid()) {
        return 0;
    }
    *value = found.ssi_int;
    return (int)found.ssi_signo;
}

static int is_told(int descriptor, int epoll)
{
    struct pollfd file = {.fd = descriptor, .events = POLLIN};
    struct epoll_event event;
    return poll(&file, 1, 0) == 1 && epoll_wait(epoll, &event, 1, 0) == 1;
}

static int is_pending(int signal)
{
    sigset_t pending;
    MUST(sigpending(&pending));
    return sigismember(&pending, signal) == 1;
}

static void raised(void)
{
    int before = 0, after = 0, told = 0, pending = 0, value;
    int descriptor = made(&one), epoll = epoll_create1(EPOLL_CLOEXEC);
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &(struct epoll_event){.events = EPOLLIN}));
    for (int i = 0; i < ROUNDS; i++) {
        MUST(raise(SIGUSR1));
        pending += is_pending(SIGUSR1);
        told += is_told(descriptor, epoll);
        before += given(descriptor, &value) == SIGUSR1 && !is_pending(SIGUSR1);
        MUST(pthread_kill(pthread_self(), SIGUSR1));
        int another = made(&one);
        after += given(another, &value) == SIGUSR1;
        close(another);
    }
    check("raised", before == ROUNDS, "%d of %d", before, ROUNDS);
    check("raised_before_it_was_made", after == ROUNDS, "%d of %d", after, ROUNDS);
    check("told", told == ROUNDS, "%d of %d", told, ROUNDS);
    check("pending", pending == ROUNDS, "%d of %d", pending, ROUNDS);
    close(descriptor);
    close(epoll);
}

/* In their order, with their values. */
static void queued(void)
{
    int in_order = 0, value;
    int descriptor = made(&real_time);
    for (int i = 0; i < ROUNDS; i++) {
        MUST(pthread_sigqueue(pthread_self(), SIGRTMIN, (union sigval){.sival_int = i}));
    }
    for (int i = 0; i < ROUNDS; i++) {
        value = -1;
        in_order += given(descriptor, &value) == SIGRTMIN && value == i;
    }
    check("queued", in_order == ROUNDS, "%d of %d", in_order, ROUNDS);
    close(descriptor);
}

/* The thread opens its mask, or waits for the signal, in place of reading. */
static void not_read(void)
{
    int descriptor = made(&one), missed = 0, waited = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int before = handled;
        MUST(raise(SIGUSR1));
        MUST(pthread_sigmask(SIG_UNBLOCK, &one, NULL));
        missed += handled != before + 1 || !pthread_equal(handled_by, pthread_self());
        MUST(pthread_sigmask(SIG_BLOCK, &one, NULL));
        MUST(raise(SIGUSR1));
        waited += sigtimedwait(&one, NULL, &(struct timespec){0, 0}) == SIGUSR1;
    }
    check("handled", missed == 0, "%d missed", missed);
    check("waited_for", waited == ROUNDS, "%d of %d", waited, ROUNDS);
    close(descriptor);
}

static atomic_int accepts;
static atomic_int done;

static void *accepter(void *unused)
{
    MUST(pthread_sigmask(SIG_UNBLOCK, &one, NULL));
    accepts = 1;
    while (!done) {
        usleep(100);
    }
    return unused;
}

/* It is for the other thread, which accepts it. */
static void to_another(void)
{
    int descriptor = made(&one), value;
    pthread_t other = start(accepter, NULL);
    while (!accepts) {
        usleep(100);
    }
    int before = handled, taken = 0;
    for (int i = 0; i < ROUNDS; i++) {
        MUST(pthread_kill(other, SIGUSR1));
        taken += given(descriptor, &value) != 0;
        while (handled != before + i + 1) {
            sched_yield();
        }
        taken += !pthread_equal(handled_by, other);
    }
    done = 1;
    join(other);
    check("to_another", taken == 0, "%d", taken);
    close(descriptor);
}

static void *all(void *unused)
{
    raised();
    queued();
    not_read();
    return unused;
}

int main(void)
{
    MUST(signal(SIGUSR1, handle) == SIG_ERR ? -1 : 0);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigemptyset(&real_time);
    sigaddset(&real_time, SIGRTMIN);
    MUST(pthread_sigmask(SIG_BLOCK, &one, NULL));
    MUST(pthread_sigmask(SIG_BLOCK, &real_time, NULL));
    for (int i = 0; i < IDLE; i++) {
        start(idle, NULL);
    }
    settle();
    all(NULL);
    join(start(all, NULL));
    to_another();
    pid_t child = fork();
    if (child == 0) {
        start(idle, NULL);
        all(NULL);
        _exit(verdict());
    }
    int status = 0;
    MUST(waitpid(child, &status, 0) != child);
    check("child", status == 0, "%#x", (unsigned)status);
    return verdict();
}
