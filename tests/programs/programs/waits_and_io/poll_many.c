/* 200 threads wait for descriptors in every way there is, are woken by others, and run into their
 * timeouts in between; nobody is forgotten and nothing is taken twice. */
#include "case.h"
#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

enum { THREADS = 200, TURNS = 40, WAYS = 5 };

static struct {
    int token, never[2], instance;
} own[THREADS];
static atomic_int begun, taken, timeouts, wrong;

/* Waits once: 1 if the token may be there, 0 after a timeout. */
static int wait_once(int i, int way, int ms)
{
    struct pollfd two[2] = {{own[i].never[0], POLLIN, 0}, {own[i].token, POLLIN, 0}};
    struct timespec time = {0, ms * 1000000L};
    struct timeval value = {0, ms * 1000};
    struct epoll_event event;
    fd_set readers;
    FD_ZERO(&readers);
    FD_SET(own[i].never[0], &readers);
    FD_SET(own[i].token, &readers);
    int top = (own[i].token > own[i].never[0] ? own[i].token : own[i].never[0]) + 1;
    switch (way) {
    case 0:
        return poll(two, 2, ms);
    case 1:
        return ppoll(two + 1, 1, ms < 0 ? NULL : &time, NULL);
    case 2:
        return select(top, &readers, NULL, NULL, ms < 0 ? NULL : &value);
    case 3:
        return (int)UNSTOPPED(epoll_pwait(own[i].instance, &event, 1, ms, NULL));
    default:
        return (int)UNSTOPPED(epoll_wait(own[i].instance, &event, 1, ms));
    }
}

static void *body(void *argument)
{
    int i = (int)(long)argument;
    /* While nobody has a token. */
    if (wait_once(i, i % WAYS, 5) == 0)
        atomic_fetch_add(&timeouts, 1);
    atomic_fetch_add(&begun, 1);
    for (int turn = 0; turn < TURNS; turn++) {
        int ms = turn % 4 == 1 ? 3 : -1, answer;
        while ((answer = wait_once(i, (i + turn) % WAYS, ms)) == 0)
            ms = 3 * ms;
        eventfd_t value;
        if (answer != 1 || eventfd_read(own[i].token, &value) != 0 || value != 1)
            atomic_fetch_add(&wrong, 1);
        atomic_fetch_add(&taken, 1);
        /* The next one's turn. */
        eventfd_write(own[(i + 1) % THREADS].token, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        struct epoll_event event = {EPOLLIN, {0}};
        own[i].token = eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE);
        MUST(pipe(own[i].never));
        own[i].instance = epoll_create1(0);
        MUST(epoll_ctl(own[i].instance, EPOLL_CTL_ADD, own[i].token, &event));
        MUST(epoll_ctl(own[i].instance, EPOLL_CTL_ADD, own[i].never[0], &event));
    }
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(body, (void *)i);
    while (atomic_load(&begun) < THREADS)
        usleep(1000);
    check("poll_many_timeouts", timeouts == THREADS, "%d", timeouts);
    for (int i = 0; i < THREADS; i += 40)
        eventfd_write(own[i].token, 1);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("poll_many", taken == THREADS * TURNS && wrong == 0, "%d turns, %d wrong", taken, wrong);
    return verdict();
}
