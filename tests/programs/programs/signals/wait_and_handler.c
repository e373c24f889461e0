/* The handler of SIGCHLD has run when a wait for the child returns, as in the kernel, which sends the signal first: in the first thread,
 * and in another one that has made the child. A thread that blocks all signals stands by. So a handler that waits for any child does not
 * find the next one. */
#include "case.h"
#include <stdatomic.h>
#include <sys/wait.h>

enum { TIMES = 300 };

static atomic_int handled, found;

static void on_child(int signal)
{
    int error = errno;
    (void)signal;
    handled++;
    found += waitpid(-1, NULL, WNOHANG) >= 0;
    errno = error;
}

/* Returns a child that has ended, or is about to. */
static pid_t child_that_ends(void)
{
    int ends[2];
    char byte;
    MUST(pipe(ends));
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        _exit(0);
    }
    close(ends[1]);
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
    }
    close(ends[0]);
    return child;
}

static int by_wait4(pid_t child)
{
    pid_t waited;
    while ((waited = waitpid(child, NULL, 0)) < 0 && errno == EINTR) {
    }
    return waited == child || (waited < 0 && errno == ECHILD);
}

static int by_waitid(pid_t child)
{
    siginfo_t about;
    int answer;
    while ((answer = waitid(P_PID, child, &about, WEXITED)) < 0 && errno == EINTR) {
    }
    return answer == 0 || errno == ECHILD;
}

static void waits(const char *name, int (*wait_for)(pid_t))
{
    int late = 0, lost = 0;
    for (int i = 0; i < TIMES; i++) {
        int before = handled;
        pid_t child = child_that_ends();
        lost += !wait_for(child);
        late += handled == before;
    }
    check(name, late == 0 && lost == 0, "%d of %d handlers were late, %d waits failed", late, TIMES, lost);
}

static void both(const char *wait4_name, const char *waitid_name)
{
    waits(wait4_name, by_wait4);
    waits(waitid_name, by_waitid);
}

static void *makes(void *unused)
{
    both("another thread, wait4", "another thread, waitid");
    return unused;
}

static void *stands_by(void *unused)
{
    for (;;)
        pause();
    return unused;
}

int main(void)
{
    sigset_t all, none, child;
    pthread_t other;
    sigfillset(&all);
    sigemptyset(&none);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    MUST(pthread_sigmask(SIG_SETMASK, &all, NULL));
    MUST(pthread_create(&other, NULL, stands_by, NULL));
    MUST(pthread_sigmask(SIG_SETMASK, &none, NULL));
    struct sigaction action = {.sa_handler = on_child};
    MUST(sigaction(SIGCHLD, &action, NULL));
    both("the first thread, wait4", "the first thread, waitid");
    pthread_t maker;
    MUST(pthread_create(&maker, NULL, makes, NULL));
    MUST(pthread_join(maker, NULL));
    return verdict();
}
