/* SIGURG, which the runtime uses itself, at a thread that has a kernel thread of its own: ignored, it ends no wait; with a
 * handler it ends what any other signal would end. SIGUSR1 beside it. */
#include "case.h"
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/fsuid.h>
#include <sys/select.h>
#include <sys/syscall.h>

enum { READ, SEMAPHORE, POLL, SELECT, SLEEP, CLOCK_SLEEP, WAITS };
static const char *const waits[] = {"read", "semaphore", "poll", "select", "sleep", "clock_sleep"};
/* Whether a handler with SA_RESTART lets it go on (signal(7)). */
static const int goes_on[] = {1, 1, 0, 0, 0, 0};

static int pipe_ends[2];
static sem_t semaphore;
static atomic_int ready, handled, over;
/* How long a wait with a time limit lasts if nothing ends it. */
static struct timespec limit;

static void handler(int signal)
{
    (void)signal;
    handled++;
}

/* 0: it was waited to the end; else the error. */
static int wait_by(int way)
{
    char byte;
    struct timespec some = limit;
    struct pollfd polled = {pipe_ends[0], POLLIN, 0};
    fd_set set;
    switch (way) {
    case READ: return read(pipe_ends[0], &byte, 1) == 1 ? 0 : errno;
    case SEMAPHORE: return sem_wait(&semaphore) == 0 ? 0 : errno;
    case POLL: return ppoll(&polled, 1, &some, NULL) == 0 ? 0 : errno;
    case SELECT:
        FD_ZERO(&set);
        FD_SET(pipe_ends[0], &set);
        return pselect(pipe_ends[0] + 1, &set, NULL, NULL, &some, NULL) == 0 ? 0 : errno;
    case SLEEP: return syscall(SYS_nanosleep, &some, NULL) == 0 ? 0 : errno;
    default: return clock_nanosleep(CLOCK_MONOTONIC, 0, &some, NULL);
    }
}

static void *waiter(void *way)
{
    struct timespec before, after;
    setfsuid(65534);
    clock_gettime(CLOCK_MONOTONIC, &before);
    ready = 1;
    int answer = wait_by((int)(long)way);
    clock_gettime(CLOCK_MONOTONIC, &after);
    over = 1;
    long passed = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    if (answer == 0 && (long)way >= POLL && passed < 299) {
        return (void *)-1L;
    }
    return (void *)(long)answer;
}

static void one(int signal, const char *what, void (*action)(int), int flags)
{
    struct sigaction asked = {.sa_handler = action, .sa_flags = flags};
    MUST(sigaction(signal, &asked, NULL));
    for (long way = 0; way < WAITS; way++) {
        pthread_t thread;
        char name[64];
        void *answer;
        int ends = action == handler && !((flags & SA_RESTART) && goes_on[way]);
        int expected = ends ? EINTR : 0;
        ready = handled = over = 0;
        limit = (struct timespec){ends ? 1000 : 0, 300 * 1000000};
        MUST(pthread_create(&thread, NULL, waiter, (void *)way));
        while (!ready) {
            sched_yield();
        }
        for (int i = 0; ends ? !over : i < 3; i++) {
            usleep(30000);
            pthread_kill(thread, signal);
        }
        usleep(30000);
        if (way == READ && !ends) {
            MUST(write(pipe_ends[1], "x", 1) != 1);
        } else if (way == SEMAPHORE && !ends) {
            MUST(sem_post(&semaphore));
        }
        MUST(pthread_join(thread, &answer));
        snprintf(name, sizeof name, "%s_%s_%s", signal == SIGURG ? "urgent" : "user", what, waits[way]);
        check(name, (long)answer == expected && (handled > 0 || !ends),
              "answer %ld, not %d; handled %d times", (long)answer, expected, handled);
    }
}

int main(void)
{
    MUST(pipe(pipe_ends));
    MUST(sem_init(&semaphore, 0, 0));
    one(SIGURG, "default", SIG_DFL, 0);
    one(SIGURG, "ignored", SIG_IGN, 0);
    for (int i = 0; i < 2; i++) {
        one(i ? SIGUSR1 : SIGURG, "restart", handler, SA_RESTART);
        one(i ? SIGUSR1 : SIGURG, "handler", handler, 0);
    }
    return verdict();
}
