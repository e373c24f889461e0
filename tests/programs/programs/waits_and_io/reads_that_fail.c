/* Reads of descriptors that can be polled and not read, or not into so small a buffer: they fail at once. */
#include "case.h"
#include <linux/io_uring.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static void fails(const char *what, int file, size_t length)
{
    char room[64];
    struct iovec part = {room, length};
    ssize_t one = read(file, room, length);
    int reason = errno;
    check("read_fails", one == -1 && reason == EINVAL, "%s: %zd, errno %d", what, one, reason);
    ssize_t some = readv(file, &part, 1);
    check("readv_fails", some == -1 && errno == EINVAL, "%s: %zd, errno %d", what, some, errno);
}

static void *body(void *unused)
{
    struct io_uring_params parameters;
    memset(&parameters, 0, sizeof parameters);
    fails("epoll", epoll_create1(0), 8);
    fails("eventfd", eventfd(0, 0), 4);
    int ring = (int)syscall(SYS_io_uring_setup, 1, &parameters);
    /* Where there are no rings, another one stands for it. */
    fails("io_uring", ring >= 0 ? ring : epoll_create1(0), 8);
    return unused;
}

int main(void)
{
    join(start(body, NULL));
    body(NULL);
    return verdict();
}
