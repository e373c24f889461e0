/* SIGPIPE and SIGXFSZ are for the thread whose write has caused them. While it blocks them they wait for it, and for nobody
 * else, whichever threads run meanwhile. */
#include "case.h"
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { ROUNDS = 2000, WRITERS = 4 };

static atomic_int handled, by_other, stop;
static _Thread_local int is_writer;

static void handler(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
    if (!is_writer)
        atomic_fetch_add(&by_other, 1);
}

static int broken_pipe(void)
{
    int ends[2];
    MUST(pipe(ends));
    MUST(close(ends[0]));
    return ends[1];
}

static int broken_socket(void)
{
    int ends[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    MUST(close(ends[1]));
    return ends[0];
}

static int is_pending(int signal)
{
    sigset_t set;
    MUST(sigpending(&set));
    return sigismember(&set, signal);
}

/* Ends with the signal still waiting: nobody gets it. */
static void *ends_with_it(void *unused)
{
    is_writer = 1;
    mask_signal(SIG_BLOCK, SIGPIPE);
    errno = 0;
    ssize_t sent = send(broken_socket(), "x", 1, 0);
    int error = errno;
    check("send", sent == -1 && error == EPIPE && is_pending(SIGPIPE), "%zd, errno %d", sent, error);
    return unused;
}

static void *takes_it(void *unused)
{
    is_writer = 1;
    mask_signal(SIG_BLOCK, SIGPIPE);
    int pipe = broken_pipe(), socket = broken_socket();
    struct iovec part = {"x", 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    struct timespec none = {0, 0};
    int file = open("/proc/self/exe", O_RDONLY);
    for (int how = 0; how < 5; how++) {
        ssize_t moved = how == 0   ? write(pipe, "x", 1)
                        : how == 1 ? writev(pipe, &part, 1)
                        : how == 2 ? sendmsg(socket, &message, 0)
                        : how == 3 ? sendto(socket, "x", 1, 0, NULL, 0)
                                   : sendfile(pipe, file, NULL, 1);
        int error = errno;
        sched_yield();
        siginfo_t information = {0};
        int taken = sigtimedwait(&set, &information, &none);
        int again = sigtimedwait(&set, NULL, &none);
        check("taken", moved == -1 && error == EPIPE && taken == SIGPIPE && again == -1 && information.si_code == SI_USER
                           && information.si_pid == getpid(),
              "way %d: %zd, errno %d; taken %d, then %d", how, moved, error, taken, again);
    }
    send(socket, "x", 1, MSG_NOSIGNAL);
    check("asked_for_none", !is_pending(SIGPIPE), "it waits");
    int before = atomic_load(&handled);
    write(pipe, "x", 1);
    sched_yield();
    mask_signal(SIG_UNBLOCK, SIGPIPE);
    check("opened", atomic_load(&handled) == before + 1, "%d handled", atomic_load(&handled) - before);
    write(pipe, "x", 1);
    check("not_blocked", atomic_load(&handled) == before + 2, "%d handled", atomic_load(&handled) - before);
    return unused;
}

static void *too_large(void *unused)
{
    is_writer = 1;
    mask_signal(SIG_BLOCK, SIGXFSZ);
    FILE *file = tmpfile();
    errno = 0;
    ssize_t written = pwrite(fileno(file), "x", 1, 4096);
    int error = errno;
    sched_yield();
    check("too_large", written == -1 && error == EFBIG && is_pending(SIGXFSZ), "%zd, errno %d", written, error);
    fclose(file);
    return unused;
}

static void *writes_for_long(void *unused)
{
    is_writer = 1;
    mask_signal(SIG_BLOCK, SIGPIPE);
    int pipe = broken_pipe();
    for (int round = 0; round < ROUNDS; round++)
        if (write(pipe, "x", 1) != -1 || !is_pending(SIGPIPE))
            return pipe ? (void *)1 : unused;
    return unused;
}

static void *runs_between(void *unused)
{
    volatile unsigned work = 0;
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 1000; i++)
            work += i;
        sched_yield();
    }
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGPIPE, &action, NULL));
    MUST(sigaction(SIGXFSZ, &action, NULL));
    pthread_t other = start(runs_between, NULL);
    join(start(ends_with_it, NULL));
    join(start(takes_it, NULL));
    struct rlimit before, small = {4096, 4096};
    MUST(getrlimit(RLIMIT_FSIZE, &before));
    small.rlim_max = before.rlim_max;
    MUST(setrlimit(RLIMIT_FSIZE, &small));
    join(start(too_large, NULL));
    MUST(setrlimit(RLIMIT_FSIZE, &before));
    pthread_t writers[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        writers[i] = start(writes_for_long, NULL);
    int failed = 0;
    for (int i = 0; i < WRITERS; i++) {
        void *answer;
        MUST(pthread_join(writers[i], &answer));
        failed += answer != NULL;
    }
    check("for_long", failed == 0, "%d of %d writers did not find the signal", failed, WRITERS);
    atomic_store(&stop, 1);
    join(other);
    check("nobody_else", atomic_load(&by_other) == 0 && atomic_load(&handled) == 2, "%d handled, %d by others",
          atomic_load(&handled), atomic_load(&by_other));
    return verdict();
}
