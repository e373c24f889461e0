/* A signal for the process is the first thread's if that accepts it, as in the kernel, whatever other threads do meanwhile:
 * from another process, with a value, from a bound thread, by a timer, by what becomes of a child. So it ends a wait of the
 * first thread. What becomes of a child that another thread has made is told to that one. If the first thread blocks the
 * signal, another one gets it, unless the first waits for it. What is sent is sent again until a wait has ended: the first
 * one may come before the wait. */
#include "case.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { COMPUTING = 3, TIMES = 20 };

static atomic_int stop, ended, by_first, by_others;
static volatile pid_t first;

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

static void pause_a_little(void)
{
    struct timespec soon = {.tv_nsec = 5000000};
    nanosleep(&soon, NULL);
}

static void await(pid_t child)
{
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Returns 1 if the first thread waits to the end. */
static int waits_on(void)
{
    struct timespec long_time = {.tv_sec = 5};
    return nanosleep(&long_time, NULL) == 0 || errno != EINTR;
}

/* Returns 1 if the first thread, which blocks the signal, waits for it to the end one of many times. */
static int waits_for_it_on(void)
{
    struct timespec long_time = {.tv_sec = 5};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    while (by_first < 5 * TIMES) {
        /* In the kernel, too, another thread may take what has woken this one. */
        if (sigtimedwait(&set, NULL, &long_time) == SIGINT)
            by_first++;
        else if (errno != EINTR)
            return 1;
    }
    return 0;
}

static int beside(void (*again)(pid_t parent), int (*waits)(void))
{
    pid_t parent = getpid(), child = fork();
    while (child == 0) {
        pause_a_little();
        again(parent);
    }
    int wrong = waits();
    kill(child, SIGKILL);
    await(child);
    return wrong;
}

static int waits_on_beside(void (*again)(pid_t parent)) { return beside(again, waits_on); }

static void kills(pid_t parent) { kill(parent, SIGINT); }

static void queues(pid_t parent)
{
    union sigval value = {.sival_int = 7};
    sigqueue(parent, SIGUSR1, value);
}

static pid_t stopped;

static void stops_and_continues(pid_t parent)
{
    (void)parent;
    kill(stopped, SIGSTOP);
    pause_a_little();
    kill(stopped, SIGCONT);
}

/* A thread of the process that asks for one processor, and then sends the process the signal. */
static void *sends(void *unused)
{
    cpu_set_t all, one;
    MUST(sched_getaffinity(0, sizeof all, &all));
    CPU_ZERO(&one);
    for (int i = 0; CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    MUST(sched_setaffinity(0, sizeof one, &one));
    mask_signal(SIG_BLOCK, SIGINT);
    while (!ended) {
        pause_a_little();
        MUST(kill(getpid(), SIGINT));
    }
    return unused;
}

/* A thread that has made a child: what becomes of that it gets itself. */
static void *has_a_child(void *wrong)
{
    pid_t others_first = first;
    first = (pid_t)syscall(SYS_gettid);
    stopped = fork();
    while (stopped == 0)
        pause();
    for (int i = 0; i < TIMES; i++)
        *(int *)wrong += waits_on_beside(stops_and_continues);
    kill(stopped, SIGKILL);
    await(stopped);
    first = others_first;
    return NULL;
}

static int waits_on_beside_a_thread(void)
{
    ended = 0;
    pthread_t thread = start(sends, NULL);
    int wrong = waits_on();
    ended = 1;
    join(thread);
    return wrong;
}

static int waits_on_with_a_timer(void)
{
    struct itimerval often = {{.tv_usec = 5000}, {.tv_usec = 5000}}, never = {{0}, {0}};
    MUST(setitimer(ITIMER_REAL, &often, NULL));
    int wrong = waits_on();
    MUST(setitimer(ITIMER_REAL, &never, NULL));
    return wrong;
}

/* The kernel gives one that comes while another is pending for the first thread to another thread. */
static void said(const char *name, int wrong)
{
    check(name, wrong == 0 && by_first >= TIMES && by_others <= by_first / 4, "%d waits go on, %d handlers in the first, %d in others",
          wrong, by_first, by_others);
    by_first = by_others = 0;
}

int main(void)
{
    pthread_t threads[COMPUTING];
    struct sigaction action = {.sa_handler = on_signal};
    int wrong[7] = {0};
    first = (pid_t)syscall(SYS_gettid);
    MUST(sigaction(SIGINT, &action, NULL));
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(sigaction(SIGALRM, &action, NULL));
    for (int i = 0; i < COMPUTING; i++)
        threads[i] = start(computes, NULL);
    mask_signal(SIG_BLOCK, SIGINT);
    wrong[5] = beside(kills, waits_for_it_on);
    mask_signal(SIG_UNBLOCK, SIGINT);
    said("first_gets_what_it_waits_for", wrong[5]);
    for (int i = 0; i < TIMES; i++)
        wrong[0] += waits_on_beside(kills);
    said("first_gets_kill", wrong[0]);
    for (int i = 0; i < TIMES; i++)
        wrong[1] += waits_on_beside(queues);
    said("first_gets_sigqueue", wrong[1]);
    for (int i = 0; i < TIMES; i++)
        wrong[2] += waits_on_beside_a_thread();
    said("first_gets_kill_by_a_thread", wrong[2]);
    for (int i = 0; i < TIMES; i++)
        wrong[3] += waits_on_with_a_timer();
    said("first_gets_a_timer", wrong[3]);
    MUST(sigaction(SIGCHLD, &action, NULL));
    stopped = fork();
    while (stopped == 0)
        pause();
    for (int i = 0; i < TIMES; i++)
        wrong[4] += waits_on_beside(stops_and_continues);
    said("first_gets_what_becomes_of_a_child", wrong[4]);
    kill(stopped, SIGKILL);
    await(stopped);
    by_first = by_others = 0;
    join(start(has_a_child, &wrong[6]));
    said("maker_gets_what_becomes_of_its_child", wrong[6]);
    signal(SIGCHLD, SIG_DFL);
    /* While it computes, too. */
    for (int i = 0; i < TIMES; i++) {
        int before = by_first + by_others;
        pid_t child = fork();
        if (child == 0)
            _exit(kill(getppid(), SIGINT));
        while (by_first + by_others == before)
            for (volatile int j = 0; j < 1000; j++) {
            }
        await(child);
    }
    said("first_gets_kill_as_it_computes", 0);
    mask_signal(SIG_BLOCK, SIGINT);
    for (int i = 0; i < TIMES; i++) {
        int before = by_others;
        pid_t child = fork();
        if (child == 0)
            _exit(kill(getppid(), SIGINT));
        await(child);
        while (by_others == before)
            for (volatile int j = 0; j < 1000; j++) {
            }
    }
    check("others_get_what_first_blocks", by_first == 0 && by_others == TIMES, "%d in the first, %d in others", by_first,
          by_others);
    stop = 1;
    for (int i = 0; i < COMPUTING; i++)
        join(threads[i]);
    return verdict();
}
