/* fork(2) in a handler, wherever the signal met its thread: in its own code, in a call that raises it, in
 * waits of several kinds. The child goes on where the parent does, and makes threads of its own. */
#include "case.h"
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>

static __thread pid_t child = -1;

static void nothing(int signal) { (void)signal; }

/* Sends the calling process SIGALRM again and again. */
static void ring(void)
{
    struct itimerval often = {{0, 20000}, {0, 20000}};
    MUST(setitimer(ITIMER_REAL, &often, NULL));
}

/* Forks once for each wait. If the signal came before the wait began, the child has nobody who sends it another. */
static void handler(int signal)
{
    (void)signal;
    int before = errno;
    if (child == -1 && (child = fork()) == 0)
        ring();
    errno = before;
}

static void *answers(void *argument) { return (char *)argument + 1; }

/* In the child: threads, a wait, the end. In the parent: whether the child did that. */
static int both(int interrupted)
{
    if (child == 0) {
        signal(SIGALRM, SIG_IGN);
        pthread_t thread;
        void *answer = NULL;
        int right = interrupted;
        for (long i = 0; i < 3; i++) {
            right &= pthread_create(&thread, NULL, answers, (void *)i) == 0;
            right &= pthread_join(thread, &answer) == 0 && (long)answer == i + 1;
        }
        struct timespec brief = {0, 1000 * 1000};
        right &= nanosleep(&brief, NULL) == 0;
        _exit(right ? 7 : 8);
    }
    int status = 0;
    pid_t made = child;
    child = -1;
    return interrupted && made > 0 && waitpid(made, &status, 0) == made && WIFEXITED(status) &&
           WEXITSTATUS(status) == 7;
}

static pthread_t waiter;
static atomic_int waits;

/* Sends signals as soon as the other thread waits, and as long as its wait has not ended. */
static void *sends(void *unused)
{
    (void)unused;
    while (!waits)
        sched_yield();
    for (settle(); waits; settle())
        pthread_kill(waiter, SIGUSR1);
    return NULL;
}

static int in_wait(int kind)
{
    pthread_t sender;
    int ends[2], interrupted = 0;
    char byte;
    struct timespec long_time = {100000, 0};
    sigset_t none;
    sigemptyset(&none);
    MUST(pipe(ends));
    struct pollfd one = {.fd = ends[0], .events = POLLIN};
    waiter = pthread_self();
    waits = 0;
    MUST(pthread_create(&sender, NULL, sends, NULL));
    waits = 1;
    errno = 0;
    switch (kind) {
    case 0:
        interrupted = pause() == -1 && errno == EINTR;
        break;
    case 1:
        interrupted = poll(&one, 1, -1) == -1 && errno == EINTR;
        break;
    case 2:
        interrupted = nanosleep(&long_time, &long_time) == -1 && errno == EINTR;
        break;
    case 3:
        interrupted = sigsuspend(&none) == -1 && errno == EINTR;
        break;
    default:
        interrupted = read(ends[0], &byte, 1) == -1 && errno == EINTR;
    }
    /* No signal comes any more: the next one would fork again. */
    if (child != 0) {
        waits = 0;
        MUST(pthread_join(sender, NULL));
    }
    int right = both(interrupted);
    close(ends[0]);
    close(ends[1]);
    return right;
}

static void *all(void *where)
{
    static const char *const names[] = {"pause", "poll", "nanosleep", "sigsuspend", "read"};
    char name[64];
    for (int kind = 0; kind < 5; kind++) {
        int right = 1;
        /* Several: what other processors do at the fork is in the child's copy, too. */
        for (int i = 0; i < 5; i++)
            right &= in_wait(kind);
        snprintf(name, sizeof name, "%s_%s", (char *)where, names[kind]);
        check(name, right, "the child did not go on");
    }
    MUST(raise(SIGUSR1));
    snprintf(name, sizeof name, "%s_raise", (char *)where);
    check(name, both(1), "the child did not go on");
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = nothing;
    MUST(sigaction(SIGALRM, &action, NULL));
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, all, "thread"));
    MUST(pthread_join(thread, NULL));
    all("first");
    return verdict();
}
