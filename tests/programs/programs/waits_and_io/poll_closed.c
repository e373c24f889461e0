/* A descriptor is closed, replaced or shared while a thread waits for it: the wait goes on with the
 * file that it began with. */
#include "case.h"
#include "poll_parks.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct wait {
    int descriptor, way, ms;
    atomic_int ready;
    int answer, error, revents;
    char byte;
    long long took;
};

static void *body(void *argument)
{
    struct wait *wait = argument;
    struct pollfd one = {wait->descriptor, POLLIN, 0};
    struct epoll_event event;
    struct timeval value = {wait->ms / 1000, wait->ms % 1000 * 1000};
    fd_set readers;
    FD_ZERO(&readers);
    FD_SET(wait->descriptor, &readers);
    parks();
    long long began = now(CLOCK_MONOTONIC);
    atomic_store(&wait->ready, 1);
    errno = 0;
    switch (wait->way) {
    case 0:
        wait->answer = poll(&one, 1, wait->ms);
        wait->revents = one.revents;
        break;
    case 1:
        wait->answer = select(wait->descriptor + 1, &readers, NULL, NULL, &value);
        break;
    case 2:
        wait->answer = epoll_wait(wait->descriptor, &event, 1, wait->ms);
        break;
    default:
        wait->answer = (int)read(wait->descriptor, &wait->byte, 1);
    }
    wait->error = errno;
    wait->took = now(CLOCK_MONOTONIC) - began;
    return NULL;
}

static pthread_t begin(struct wait *wait, int descriptor, int way, int ms)
{
    memset(wait, 0, sizeof *wait);
    wait->descriptor = descriptor;
    wait->way = way;
    wait->ms = ms;
    pthread_t thread = start(body, wait);
    while (!atomic_load(&wait->ready))
        sched_yield();
    settle();
    return thread;
}

int main(void)
{
    struct wait wait;
    int ends[2], other[2], pair[2], instance, kept;
    struct epoll_event event = {EPOLLIN, {0}};
    pthread_t thread;

    parks_begin();

    /* Closing does not wake; the number counts in the end. */
    MUST(pipe(ends));
    thread = begin(&wait, ends[0], 0, 150);
    close(ends[0]);
    join(thread);
    check("poll_closed", wait.answer == 1 && wait.revents == POLLNVAL && wait.took >= 150000000,
          "%d, %x after %lld ns", wait.answer, wait.revents, wait.took);
    close(ends[1]);

    MUST(pipe(ends));
    thread = begin(&wait, ends[0], 1, 150);
    close(ends[0]);
    join(thread);
    check("select_closed", wait.took >= 150000000, "%d after %lld ns", wait.answer, wait.took);
    close(ends[1]);

    /* The old file's event wakes. */
    MUST(pipe(ends));
    kept = dup(ends[0]);
    thread = begin(&wait, ends[0], 0, -1);
    close(ends[0]);
    settle();
    MUST(write(ends[1], "x", 1) != 1);
    join(thread);
    check("poll_closed_event", wait.answer == 1 && wait.revents == POLLNVAL, "%d, %x", wait.answer,
          wait.revents);
    close(ends[1]);
    close(kept);

    /* The wait alone keeps the file open. */
    MUST(pipe(ends));
    thread = begin(&wait, ends[0], 3, 0);
    close(ends[0]);
    settle();
    MUST(write(ends[1], "y", 1) != 1);
    join(thread);
    check("read_closed", wait.answer == 1 && wait.byte == 'y', "%d, errno %d", wait.answer, wait.error);
    close(ends[1]);

    MUST(pipe(ends));
    instance = epoll_create1(0);
    MUST(epoll_ctl(instance, EPOLL_CTL_ADD, ends[0], &event));
    thread = begin(&wait, instance, 2, -1);
    close(instance);
    settle();
    MUST(write(ends[1], "z", 1) != 1);
    join(thread);
    check("epoll_closed", wait.answer == 1, "%d, errno %d", wait.answer, wait.error);
    close(ends[0]);
    close(ends[1]);

    /* Shut down and closed at once: that it was shut down is not lost. */
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    thread = begin(&wait, pair[0], 0, -1);
    shutdown(pair[0], SHUT_RDWR);
    close(pair[0]);
    join(thread);
    check("poll_shut_down", wait.answer == 1, "%d, errno %d", wait.answer, wait.error);
    close(pair[1]);

    /* Replaced: the old file wakes, and then the new one's state is the answer. */
    MUST(pipe(ends));
    MUST(pipe(other));
    kept = dup(ends[0]);
    thread = begin(&wait, ends[0], 0, 300);
    MUST(dup2(other[0], ends[0]) != ends[0]);
    MUST(write(other[1], "o", 1) != 1);
    settle();
    MUST(write(ends[1], "e", 1) != 1);
    join(thread);
    check("poll_replaced", wait.answer == 1 && wait.revents == POLLIN, "%d, %x", wait.answer,
          wait.revents);
    close(ends[0]);
    close(ends[1]);
    close(kept);

    /* After all that a number is like new. */
    thread = begin(&wait, other[0], 3, 0);
    join(thread);
    check("read_after", wait.answer == 1 && wait.byte == 'o', "%d", wait.answer);

    /* Children inherit descriptors and not waits. */
    MUST(pipe(ends));
    thread = begin(&wait, ends[0], 0, -1);
    pid_t child = fork();
    if (child == 0) {
        struct pollfd one = {ends[0], POLLIN, 0};
        if (poll(&one, 1, 10) != 0)
            _exit(3);
        MUST(write(ends[1], "c", 1) != 1);
        execlp("true", "true", (char *)NULL);
        _exit(4);
    }
    int status = -1;
    MUST(waitpid(child, &status, 0) != child);
    join(thread);
    check("poll_forked", status == 0 && wait.answer == 1 && wait.revents == POLLIN, "%x, %d, %x",
          (unsigned)status, wait.answer, wait.revents);

    /* A descriptor that came from another process, under another number. */
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    child = fork();
    if (child == 0) {
        int fresh[2];
        char control[CMSG_SPACE(sizeof(int))] = {0}, byte = 0;
        struct iovec part = {&byte, 1};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof control};
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        MUST(pipe(fresh));
        *header = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(header), &fresh[0], sizeof(int));
        MUST(sendmsg(pair[1], &message, 0) != 1);
        MUST(read(pair[1], &byte, 1) != 1);
        MUST(write(fresh[1], "p", 1) != 1);
        _exit(0);
    }
    char control[CMSG_SPACE(sizeof(int))], byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    MUST(recvmsg(pair[0], &message, 0) != 1);
    int passed;
    memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    thread = begin(&wait, passed, 0, -1);
    MUST(write(pair[0], "g", 1) != 1);
    join(thread);
    check("poll_passed", wait.answer == 1 && wait.revents & POLLIN, "%d, %x", wait.answer, wait.revents);
    MUST(waitpid(child, &status, 0) != child);
    return verdict();
}
