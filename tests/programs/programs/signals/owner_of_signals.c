/* A thread as the owner of a descriptor's signals (F_OWNER_TID): they come to it, or the kernel does not take it for an
 * owner. The program can have mutexes that the kernel must understand. */
#include "case.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static sigset_t set;

/* Whether the signals of a new socket come to the calling thread, and to nobody where that cannot be. */
static void *owns(void *who)
{
    if (strcmp(who, "bound") == 0)
        MUST(setpriority(PRIO_PROCESS, 0, 3));
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    struct f_owner_ex owner = {F_OWNER_TID, gettid()};
    errno = 0;
    int answer = fcntl(ends[0], F_SETOWN_EX, &owner), error = errno;
    if (answer != 0) {
        check(who, error == ESRCH && strcmp(who, "thread") == 0, "errno %d", error);
        return NULL;
    }
    MUST(fcntl(ends[0], F_SETSIG, SIGUSR1));
    MUST(fcntl(ends[0], F_SETFL, O_ASYNC));
    MUST(write(ends[1], "a", 1) != 1);
    siginfo_t information;
    struct timespec limit = {5, 0};
    int signal = sigtimedwait(&set, &information, &limit);
    check(who, signal == SIGUSR1 && information.si_fd == ends[0], "signal %d, errno %d", signal, errno);
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

int main(void)
{
    /* Threads that a kernel must know in some programs. */
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    MUST(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    MUST(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    join(start(owns, "thread"));
    owns("first");
    join(start(owns, "bound"));
    struct f_owner_ex nobody = {F_OWNER_TID, 0}, odd = {7, getpid()};
    int ends[2];
    MUST(pipe(ends));
    check("nobody", fcntl(ends[0], F_SETOWN_EX, &nobody) == 0, "errno %d", errno);
    check("no_such_kind", fcntl(ends[0], F_SETOWN_EX, &odd) == -1 && errno == EINVAL, "errno %d", errno);
    check("no_descriptor", fcntl(-1, F_SETOWN_EX, NULL) == -1 && errno == EBADF, "errno %d", errno);
    check("no_memory", fcntl(ends[0], F_SETOWN_EX, NULL) == -1 && errno == EFAULT, "errno %d", errno);
    return verdict();
}
