/* A signal ends a wait for descriptors with EINTR, SA_RESTART or not. A mask that comes with the call
 * holds exactly as long as the call waits. */
#include "case.h"
#include "poll_parks.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

enum { WAYS = 7, ROUNDS = 400 };

static int ends[2], instance;
static atomic_int handled, ready;
static const char *names[WAYS] = {"poll",        "ppoll",      "select",      "pselect",
                                  "epoll_pwait", "epoll_wait", "poll_sleeping"};

static void handler(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static int wait_with(int way, const sigset_t *mask, int ms)
{
    struct pollfd one = {ends[0], POLLIN, 0};
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    struct epoll_event event;
    fd_set readers;
    FD_ZERO(&readers);
    FD_SET(ends[0], &readers);
    switch (way) {
    case 0:
        return poll(&one, 1, ms);
    case 1:
        return ppoll(&one, 1, ms < 0 ? NULL : &time, mask);
    case 2:
        return select(ends[0] + 1, &readers, NULL, NULL, NULL);
    case 3:
        return pselect(ends[0] + 1, &readers, NULL, NULL, ms < 0 ? NULL : &time, mask);
    case 4:
        return epoll_pwait(instance, &event, 1, ms, mask);
    case 5:
        return epoll_wait(instance, &event, 1, ms);
    default:
        return poll(NULL, 0, ms);
    }
}

static void *interrupted(void *way)
{
    parks();
    atomic_store(&ready, 1);
    errno = 0;
    int answer = wait_with((int)(long)way, NULL, -1);
    return (void *)(long)(answer == -1 ? errno : -2);
}

/* A signal for the thread, until it has had one. */
static void interrupts(const char *kind, int flags)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    MUST(sigaction(SIGUSR1, &action, NULL));
    for (long way = 0; way < WAYS; way++) {
        char name[64];
        snprintf(name, sizeof name, "%s_%s", names[way], kind);
        atomic_store(&ready, 0);
        atomic_store(&handled, 0);
        pthread_t thread = start(interrupted, (void *)way);
        while (!atomic_load(&ready))
            sched_yield();
        settle();
        pthread_kill(thread, SIGUSR1);
        while (!atomic_load(&handled))
            sched_yield();
        /* If the first one came before the wait began. */
        void *ended;
        while (pthread_tryjoin_np(thread, &ended) == EBUSY) {
            settle();
            pthread_kill(thread, SIGUSR1);
        }
        check(name, (long)ended == EINTR, "%ld", (long)ended);
    }
}

static sigset_t closed, open_set;
static atomic_int rounds, lost;

static void *masked(void *argument)
{
    int way = (int)(long)argument;
    parks();
    pthread_sigmask(SIG_BLOCK, &closed, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        int before = atomic_load(&handled);
        atomic_store(&ready, 1);
        errno = 0;
        int answer = wait_with(way, &open_set, 60000);
        sigset_t now_set;
        pthread_sigmask(SIG_SETMASK, NULL, &now_set);
        if (answer != -1 || errno != EINTR || atomic_load(&handled) != before + 1 ||
            !sigismember(&now_set, SIGUSR1))
            atomic_fetch_add(&lost, 1);
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

/* The signal is blocked but in the call: no round may wait for the timeout. */
static void atomics(int to_process)
{
    static const int ways[] = {1, 3, 4};
    for (int i = 0; i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_mask_%s", names[ways[i]], to_process ? "process" : "thread");
        atomic_store(&handled, 0);
        atomic_store(&rounds, 0);
        atomic_store(&lost, 0);
        atomic_store(&ready, 0);
        pthread_t thread = start(masked, (void *)(long)ways[i]);
        for (int round = 0; round < ROUNDS; round++) {
            while (!atomic_exchange(&ready, 0))
                sched_yield();
            for (volatile int spin = 0; spin < round * 20; spin++) {
            }
            if (to_process)
                kill(getpid(), SIGUSR1);
            else
                pthread_kill(thread, SIGUSR1);
            while (atomic_load(&rounds) == round)
                sched_yield();
        }
        join(thread);
        check(name, lost == 0 && handled == ROUNDS, "%d of %d wrong, %d handled", lost, ROUNDS,
              handled);
    }
}

/* What is ready comes first: the signal stays pending. */
static void ready_first(void)
{
    sigset_t pending;
    char byte;
    atomic_store(&handled, 0);
    MUST(write(ends[1], "x", 1) != 1);
    pthread_kill(pthread_self(), SIGUSR1);
    int answer = wait_with(1, &open_set, -1);
    sigpending(&pending);
    check("ready_before_signal", answer == 1 && handled == 0 && sigismember(&pending, SIGUSR1),
          "%d, %d handled", answer, handled);
    MUST(read(ends[0], &byte, 1) != 1);
    errno = 0;
    answer = wait_with(1, &open_set, 0);
    check("signal_without_time", answer == -1 && errno == EINTR && handled == 1, "%d, errno %d",
          answer, errno);
    answer = wait_with(4, &open_set, 0);
    check("no_signal_without_time", answer == 0, "%d", answer);
}

int main(void)
{
    struct epoll_event event = {EPOLLIN, {0}};
    MUST(pipe(ends));
    instance = epoll_create1(0);
    MUST(epoll_ctl(instance, EPOLL_CTL_ADD, ends[0], &event));
    parks_begin();
    interrupts("interrupted", 0);
    interrupts("not_restarted", SA_RESTART);
    sigemptyset(&open_set);
    sigemptyset(&closed);
    sigaddset(&closed, SIGUSR1);
    MUST(pthread_sigmask(SIG_BLOCK, &closed, NULL));
    atomics(0);
    atomics(1);
    ready_first();
    return verdict();
}
