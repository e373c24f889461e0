/* Every call that waits for several descriptors ends by its timeout, or at once where it asks for what
 * is wrong, and leaves behind what it should. */
#include "case.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { MS = 30 };

static int ends[2], instance;

/* Says whether a wait took its time; how long is the machine's business. */
static void timed(const char *name, int answer, long long began)
{
    long long took = now(CLOCK_MONOTONIC) - began;
    check(name, answer == 0 && took >= MS * 1000000LL, "%d (errno %d) after %lld ns", answer, errno,
          took);
}

static void sets(fd_set *readers)
{
    FD_ZERO(readers);
    FD_SET(ends[0], readers);
}

static void timeouts(void)
{
    struct timespec brief = {0, MS * 1000000}, left;
    struct timeval value = {0, MS * 1000};
    struct epoll_event event;
    struct pollfd one = {ends[0], POLLIN, -1};
    fd_set readers;
    long long began = now(CLOCK_MONOTONIC);

    timed("poll", poll(&one, 1, MS), began);
    check("poll_revents", one.revents == 0, "%d", one.revents);
    began = now(CLOCK_MONOTONIC);
    timed("ppoll", ppoll(&one, 1, &brief, NULL), began);
    began = now(CLOCK_MONOTONIC);
    timed("epoll_wait", epoll_wait(instance, &event, 1, MS), began);
    began = now(CLOCK_MONOTONIC);
    timed("epoll_pwait", epoll_pwait(instance, &event, 1, MS, NULL), began);
    began = now(CLOCK_MONOTONIC);
    timed("epoll_pwait2", (int)syscall(SYS_epoll_pwait2, instance, &event, 1, &brief, NULL, 8), began);
    sets(&readers);
    began = now(CLOCK_MONOTONIC);
    timed("select", select(ends[0] + 1, &readers, NULL, NULL, &value), began);
    check("select_sets", !FD_ISSET(ends[0], &readers), "still set");
    check("select_left", value.tv_sec == 0 && value.tv_usec == 0, "%ld", (long)value.tv_usec);
    sets(&readers);
    began = now(CLOCK_MONOTONIC);
    timed("pselect", pselect(ends[0] + 1, &readers, NULL, NULL, &brief, NULL), began);
    left = brief;
    began = now(CLOCK_MONOTONIC);
    timed("ppoll_raw", (int)syscall(SYS_ppoll, &one, 1, &left, NULL, 8), began);
    check("ppoll_left", left.tv_sec == 0 && left.tv_nsec == 0, "%ld", left.tv_nsec);

    began = now(CLOCK_MONOTONIC);
    timed("poll_sleeps", poll(NULL, 0, MS), began);
    value = (struct timeval){0, MS * 1000};
    began = now(CLOCK_MONOTONIC);
    timed("select_sleeps", select(0, NULL, NULL, NULL, &value), began);
    began = now(CLOCK_MONOTONIC);
    one.fd = -1;
    timed("poll_of_nothing", poll(&one, 1, MS), began);
}

static void *write_later(void *unused)
{
    settle();
    MUST(write(ends[1], "x", 1) != 1);
    return unused;
}

/* What is left of a long timeout. */
static void lefts(void)
{
    struct timeval value = {100, 0};
    fd_set readers;
    char byte;
    pthread_t writer = start(write_later, NULL);
    sets(&readers);
    int answer = select(ends[0] + 1, &readers, NULL, NULL, &value);
    check("select_ready", answer == 1 && FD_ISSET(ends[0], &readers), "%d", answer);
    check("select_left_of_100", value.tv_sec < 100 && value.tv_sec > 0, "%ld s", (long)value.tv_sec);
    join(writer);
    MUST(read(ends[0], &byte, 1) != 1);
}

static void wrong(void)
{
    struct pollfd one = {1000, POLLIN, 0};
    struct epoll_event event;
    struct timeval value = {-1, 0};
    fd_set readers;
    errno = 0;
    int answer = poll(&one, 1, -1);
    check("poll_of_closed", answer == 1 && one.revents == POLLNVAL, "%d, %x", answer, one.revents);
    struct pollfd *volatile bad = (struct pollfd *)16;
    answer = poll(bad, 1, -1);
    check("poll_fault", answer == -1 && errno == EFAULT, "%d, errno %d", answer, errno);
    answer = epoll_wait(1000, &event, 1, -1);
    check("epoll_of_closed", answer == -1 && errno == EBADF, "%d, errno %d", answer, errno);
    answer = epoll_wait(ends[0], &event, 1, -1);
    check("epoll_of_pipe", answer == -1 && errno == EINVAL, "%d, errno %d", answer, errno);
    answer = epoll_wait(instance, &event, 0, -1);
    check("epoll_of_none", answer == -1 && errno == EINVAL, "%d, errno %d", answer, errno);
    sets(&readers);
    answer = (int)syscall(SYS_select, ends[0] + 1, &readers, NULL, NULL, &value);
    check("select_negative", answer == -1 && errno == EINVAL, "%d, errno %d", answer, errno);
    check("select_unchanged", FD_ISSET(ends[0], &readers), "cleared");
    /* A number beyond the kernel's table is not looked at, one inside it is wrong. */
    close(dup2(ends[0], 1001));
    FD_SET(1000, &readers);
    answer = select(1001, &readers, NULL, NULL, NULL);
    check("select_of_closed", answer == -1 && errno == EBADF, "%d, errno %d", answer, errno);
}

/* More than a thread parks on; and what can be watched, and what need not be. */
static void large(void)
{
    enum { COUNT = 300 };
    static struct pollfd many[COUNT];
    char byte;
    for (int i = 0; i < COUNT; i++)
        many[i] = (struct pollfd){ends[0], POLLIN, 0};
    pthread_t writer = start(write_later, NULL);
    int answer = poll(many, COUNT, -1);
    check("poll_300", answer == COUNT && many[0].revents == POLLIN, "%d", answer);
    join(writer);
    MUST(read(ends[0], &byte, 1) != 1);

    FILE *file = tmpfile();
    MUST(file == NULL);
    struct pollfd two[2] = {{fileno(file), POLLIN, 0}, {ends[0], POLLIN, 0}};
    answer = poll(two, 2, -1);
    check("poll_file", answer == 1 && two[0].revents == POLLIN && two[1].revents == 0, "%d", answer);
    /* It is never in error, and cannot be watched. */
    two[0].events = 0;
    writer = start(write_later, NULL);
    answer = poll(two, 2, -1);
    check("poll_file_unwatched", answer == 1 && two[1].revents == POLLIN, "%d", answer);
    join(writer);
    fclose(file);
}

static void *body(void *unused)
{
    timeouts();
    return unused;
}

int main(void)
{
    struct epoll_event event = {EPOLLIN, {0}};
    MUST(pipe(ends));
    instance = epoll_create1(0);
    MUST(epoll_ctl(instance, EPOLL_CTL_ADD, ends[0], &event));
    join(start(body, NULL));
    lefts();
    wrong();
    large();
    return verdict();
}
