/* A signal for the process is the first thread's if that accepts it, as in the kernel, whatever other threads do meanwhile:
 * from another process, by a timer, with a value, by the end of a child. So it ends a wait of the first thread. If that
 * blocks it, another thread gets it. */
#include "case.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { COMPUTING = 3, TIMES = 20 };

static atomic_int stop, by_first, by_others;
static pid_t first;

static void on_signal(int signal)
{
    (void)signal;
    if (syscall(SYS_gettid) == first)
        by_first++;
    else
        by_others++;
}

static void *computes(void *unused)
{
    while (!stop)
        for (volatile int i = 0; i < 10000; i++) {
        }
    return unused;
}

/* A process that sends the signal, with or without a value, when its parent may wait already. */
static pid_t sender(int signal, int with_value)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        struct timespec soon = {.tv_nsec = 5000000};
        union sigval value = {.sival_int = 7};
        nanosleep(&soon, NULL);
        _exit(with_value ? sigqueue(parent, signal, value) : kill(parent, signal));
    }
    return child;
}

/* How many of so many waits of the first thread a signal from another process does not end. */
static int waits_that_go_on(int signal, int with_value)
{
    int wrong = 0;
    for (int i = 0; i < TIMES; i++) {
        struct timespec long_time = {.tv_sec = 5};
        pid_t child = sender(signal, with_value);
        wrong += nanosleep(&long_time, NULL) == 0 || errno != EINTR;
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    return wrong;
}

static void said(const char *name, int wrong)
{
    check(name, wrong == 0 && by_first >= TIMES && by_others == 0, "%d waits go on, %d handlers in the first, %d in others", wrong,
          by_first, by_others);
    by_first = by_others = 0;
}

int main(void)
{
    pthread_t threads[COMPUTING];
    struct sigaction action = {.sa_handler = on_signal};
    first = (pid_t)syscall(SYS_gettid);
    for (int i = 0; i < 4; i++)
        MUST(sigaction((int[]){SIGINT, SIGUSR1, SIGALRM, SIGCHLD}[i], &action, NULL));
    for (int i = 0; i < COMPUTING; i++)
        threads[i] = start(computes, NULL);
    signal(SIGCHLD, SIG_DFL);
    said("first_gets_kill", waits_that_go_on(SIGINT, 0));
    said("first_gets_sigqueue", waits_that_go_on(SIGUSR1, 1));
    int wrong = 0;
    for (int i = 0; i < TIMES; i++) {
        struct itimerval soon = {.it_value.tv_usec = 5000};
        struct timespec long_time = {.tv_sec = 5};
        MUST(setitimer(ITIMER_REAL, &soon, NULL));
        wrong += nanosleep(&long_time, NULL) == 0 || errno != EINTR;
    }
    said("first_gets_a_timer", wrong);
    MUST(sigaction(SIGCHLD, &action, NULL));
    wrong = 0;
    for (int i = 0; i < TIMES; i++) {
        struct timespec soon = {.tv_nsec = 5000000}, long_time = {.tv_sec = 5};
        pid_t child = fork();
        if (child == 0) {
            nanosleep(&soon, NULL);
            _exit(0);
        }
        wrong += nanosleep(&long_time, NULL) == 0 || errno != EINTR;
        waitpid(child, NULL, 0);
    }
    said("first_gets_the_end_of_a_child", wrong);
    signal(SIGCHLD, SIG_DFL);
    /* While it computes, too. */
    for (int i = 0; i < TIMES; i++) {
        pid_t child = sender(SIGINT, 0);
        int before = by_first + by_others;
        while (by_first + by_others == before)
            for (volatile int j = 0; j < 1000; j++) {
            }
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    said("first_gets_kill_as_it_computes", 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < TIMES; i++) {
        int before = by_others;
        pid_t child = sender(SIGINT, 0);
        waitpid(child, NULL, 0);
        while (by_others == before)
            for (volatile int j = 0; j < 1000; j++) {
            }
    }
    check("others_get_what_first_blocks", by_first == 0 && by_others == TIMES, "%d in the first, %d in others", by_first, by_others);
    stop = 1;
    for (int i = 0; i < COMPUTING; i++)
        join(threads[i]);
    return verdict();
}
