/* A signal that the process sends itself and all its threads block is pending when the call returns: for sigpending(2), for
 * sigtimedwait(2) without time, and for a descriptor of signalfd(2). A thread had accepted it just before, while
 * others wait. */
#include "case.h"
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

enum { ROUNDS = 3000, IDLE = 3 };

static sigset_t set;
static int descriptor;

static void handle(int signal) { (void)signal; }

static void *idle(void *unused)
{
    for (;;) {
        pause();
    }
    return unused;
}

static int is_pending(void)
{
    sigset_t pending;
    MUST(sigpending(&pending));
    return sigismember(&pending, SIGUSR1);
}

static int take(void) { return sigtimedwait(&set, NULL, &(struct timespec){0, 0}) == SIGUSR1; }

static int read_it(void)
{
    struct signalfd_siginfo found;
    return read(descriptor, &found, sizeof found) == sizeof found;
}

static int open_and_read(void)
{
    descriptor = signalfd(-1, &set, SFD_NONBLOCK);
    int there = read_it();
    close(descriptor);
    return there;
}

/* `before` is there when the signal is sent, or made afterwards. */
static void rounds(const char *name, int (*look)(void), int before)
{
    int missed = 0, left = 0;
    for (int i = 0; i < ROUNDS; i++) {
        MUST(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
        MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
        if (before) {
            descriptor = signalfd(-1, &set, SFD_NONBLOCK);
        }
        MUST(kill(getpid(), SIGUSR1));
        missed += !look();
        if (before) {
            close(descriptor);
        }
        /* In whatever way it was found, the next round begins without. */
        while (is_pending()) {
            take();
        }
        left += is_pending();
    }
    check(name, missed == 0 && left == 0, "%d missed, %d left", missed, left);
}

static void *looks(void *unused)
{
    rounds("sigpending", is_pending, 0);
    rounds("sigtimedwait", take, 0);
    rounds("signalfd", open_and_read, 0);
    rounds("signalfd_before", read_it, 1);
    return unused;
}

int main(void)
{
    MUST(signal(SIGUSR1, handle) == SIG_ERR);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < IDLE; i++) {
        start(idle, NULL);
    }
    settle();
    looks(NULL);
    join(start(looks, NULL));
    pid_t child = fork();
    if (child == 0) {
        start(idle, NULL);
        looks(NULL);
        _exit(verdict());
    }
    int status = 0;
    MUST(waitpid(child, &status, 0) != child);
    check("child", status == 0, "%#x", (unsigned)status);
    return verdict();
}
