/* A process without a thread waits by signalfd(2) for signals that the runtime uses itself, as PostgreSQL does for SIGURG.
 * So does its child. When a thread was made, descriptors still give other signals, each those that it had. */
#include "case.h"
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

static int make(int descriptor, int one, int another)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, one);
    if (another != 0)
        sigaddset(&set, another);
    MUST(sigprocmask(SIG_BLOCK, &set, NULL));
    int made = signalfd(descriptor, &set, SFD_NONBLOCK);
    MUST(made < 0 ? -1 : 0);
    return made;
}

/* Sends a signal to the process. Returns the one that the descriptor gives. */
static int given(int descriptor, int sent)
{
    MUST(kill(getpid(), sent));
    struct pollfd file = {.fd = descriptor, .events = POLLIN};
    struct signalfd_siginfo information = {0};
    MUST(poll(&file, 1, -1) == 1 ? 0 : -1);
    if (read(descriptor, &information, sizeof information) != sizeof information)
        return -1;
    return (int)information.ssi_signo;
}

static void *nothing(void *unused) { return unused; }

int main(void)
{
    int urgent = make(-1, SIGURG, SIGUSR1), changed = make(-1, SIGUSR1, 0), replaced = make(-1, SIGBUS, SIGUSR2);
    changed = make(changed, SIGSEGV, SIGUSR2);
    int got = given(urgent, SIGURG);
    check("urgent", got == SIGURG, "got %d", got);
    got = given(urgent, SIGUSR1);
    check("user", got == SIGUSR1, "got %d", got);
    got = given(changed, SIGSEGV);
    check("fault", got == SIGSEGV, "got %d", got);

    pid_t child = fork();
    MUST(child < 0 ? -1 : 0);
    if (child == 0)
        _exit(given(urgent, SIGURG) == SIGURG ? 0 : 1);
    int status = -1;
    MUST(waitpid(child, &status, 0) == child ? 0 : -1);
    check("child", status == 0, "status %d", status);

    child = fork();
    MUST(child < 0 ? -1 : 0);
    if (child == 0) {
        join(start(nothing, NULL));
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child ? 0 : -1);
    got = given(urgent, SIGURG);
    check("child_with_threads", status == 0 && got == SIGURG, "status %d, got %d", status, got);

    int other = make(-1, SIGWINCH, 0);
    MUST(dup2(other, replaced) == replaced ? 0 : -1);
    join(start(nothing, NULL));
    got = given(urgent, SIGUSR1);
    check("user_with_threads", got == SIGUSR1, "got %d", got);
    got = given(changed, SIGUSR2);
    check("changed_with_threads", got == SIGUSR2, "got %d", got);
    got = given(replaced, SIGWINCH);
    check("replaced_with_threads", got == SIGWINCH, "got %d", got);
    return verdict();
}
