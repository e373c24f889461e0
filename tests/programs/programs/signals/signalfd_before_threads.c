/* A process without a thread waits by signalfd(2) for signals that the runtime uses itself, as PostgreSQL does for SIGURG.
 * So does its child, and a program that the child executes. When a thread was made, descriptors still give other signals, each those that it had. */
#include "case.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
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

static atomic_int goes_on = 1;

static void *computes(void *unused)
{
    while (goes_on) {
    }
    return unused;
}

/* An executed program with threads that take turns, and a descriptor that it has inherited: it reads there what it was
 * sent, and nothing of the runtime's. */
static int inherits(int descriptor)
{
    pthread_t threads[4];
    struct signalfd_siginfo information;
    int strange = 0, flags = fcntl(descriptor, F_GETFL), closes = fcntl(descriptor, F_GETFD);
    for (int i = 0; i < 4; i++)
        threads[i] = start(computes, NULL);
    for (int i = 0; i < 20000; i++) {
        strange += read(descriptor, &information, sizeof information) >= 0;
        if (i % 5000 == 0)
            usleep(1000);
    }
    goes_on = 0;
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    strange += fcntl(descriptor, F_GETFL) != flags || fcntl(descriptor, F_GETFD) != closes;
    return strange != 0 || given(descriptor, SIGUSR1) != SIGUSR1;
}

int main(int count, char **words)
{
    if (count == 2)
        return inherits(atoi(words[1]));
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

    child = fork();
    MUST(child < 0 ? -1 : 0);
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", urgent);
        execl("/proc/self/exe", words[0], number, (char *)NULL);
        _exit(2);
    }
    MUST(waitpid(child, &status, 0) == child ? 0 : -1);
    got = given(urgent, SIGURG);
    check("executed_with_threads", status == 0 && got == SIGURG, "status %d, got %d", status, got);

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
