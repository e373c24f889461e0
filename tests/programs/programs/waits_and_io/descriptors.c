/* Threads block on pipes, sockets, eventfd, timerfd, poll, select and epoll; bytes arrive in
 * order, and O_NONBLOCK is as the program left it. */
#include "case.h"
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

static atomic_int wrong;
struct pair {
    int in, out;
};

/* Ping-pong of growing numbers over any two descriptors. */
static void *echo(void *argument)
{
    struct pair *pair = argument;
    uint32_t number;
    while (read(pair->in, &number, 4) == 4) {
        number++;
        if (write(pair->out, &number, 4) != 4)
            atomic_fetch_add(&wrong, 1);
    }
    close(pair->out);
    return NULL;
}

static void exchange(const char *name, int server_in, int server_out, int in, int out)
{
    struct pair pair = {server_in, server_out};
    atomic_store(&wrong, 0);
    int flags[2] = {fcntl(in, F_GETFL), fcntl(out, F_GETFL)};
    pthread_t thread = start(echo, &pair);
    uint32_t number = 0;
    for (int i = 1; i <= 3000; i++)
        if (write(out, &number, 4) != 4 || read(in, &number, 4) != 4 || number != (uint32_t)i)
            atomic_fetch_add(&wrong, 1);
    int same = fcntl(in, F_GETFL) == flags[0] && fcntl(out, F_GETFL) == flags[1];
    if (in == out)
        shutdown(out, SHUT_WR);
    else
        close(out);
    join(thread);
    check(name, wrong == 0 && same, "%d wrong; file flags the same: %d", wrong, same);
}

static void *late_write(void *descriptor)
{
    uint64_t one = 1;
    settle();
    if (write((int)(long)descriptor, &one, 8) != 8)
        atomic_fetch_add(&wrong, 1);
    return NULL;
}

static void waits(void)
{
    int event = eventfd(0, 0);
    uint64_t value = 0;
    pthread_t thread = start(late_write, (void *)(long)event);
    int got = read(event, &value, 8) == 8 && value == 1;
    join(thread);
    check("eventfd", got, "value %lu", (unsigned long)value);

    thread = start(late_write, (void *)(long)event);
    struct pollfd one = {event, POLLIN, 0};
    got = poll(&one, 1, -1);
    join(thread);
    check("poll", got == 1 && one.revents == POLLIN, "%d, %#x", got, one.revents);

    fd_set set;
    FD_ZERO(&set);
    FD_SET(event, &set);
    got = select(event + 1, &set, NULL, NULL, NULL);
    check("select", got == 1 && FD_ISSET(event, &set), "%d", got);

    int epoll = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.u64 = 77}, seen = {0};
    epoll_ctl(epoll, EPOLL_CTL_ADD, event, &wanted);
    read(event, &value, 8) == 8 ? (void)0 : (void)atomic_fetch_add(&wrong, 1);
    thread = start(late_write, (void *)(long)event);
    got = epoll_wait(epoll, &seen, 1, -1);
    join(thread);
    check("epoll", got == 1 && seen.data.u64 == 77, "%d, %lu", got, (unsigned long)seen.data.u64);

    int timer = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec every = {{0, 2000000}, {0, 2000000}};
    timerfd_settime(timer, 0, &every, NULL);
    uint64_t ticks = 0;
    while (ticks < 5)
        ticks += read(timer, &value, 8) == 8 ? value : 0;
    check("timerfd", 1, "unreachable");

    one.fd = timer;
    every.it_value.tv_sec = 1000;
    timerfd_settime(timer, 0, &every, NULL);
    long long before = now(CLOCK_MONOTONIC);
    got = poll(&one, 1, 30);
    long long waited = now(CLOCK_MONOTONIC) - before;
    check("poll_timeout", got == 0 && waited >= 30000000, "%d after %lld ns", got, waited);
}

static void *all_waits(void *unused)
{
    waits();
    return unused;
}

int main(void)
{
    int to[2], from[2], pair[2];
    MUST(pipe(to));
    MUST(pipe(from));
    exchange("pipe_exchange", to[0], from[1], from[0], to[1]);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    exchange("socket_exchange", pair[0], pair[0], pair[1], pair[1]);
    join(start(all_waits, NULL));
    return verdict();
}
