/* What calls on descriptors answer to right and wrong requests. */
#include "answers.h"
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif

static void descriptors(void)
{
    int pipes[2], stream[2], datagram[2], file = open("answers.file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    char bytes[64] = "abc";
    struct iovec vector[2] = {{bytes, 3}, {bytes, 2}};
    struct msghdr message = {.msg_iov = vector, .msg_iovlen = 2};
    MUST(pipe(pipes));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagram));
    ASK(syscall(SYS_read, -1, bytes, 1));
    ASK(syscall(SYS_read, 10000, bytes, 1));
    ASK(syscall(SYS_read, pipes[1], bytes, 1));
    ASK(syscall(SYS_read, pipes[0], bytes, 0));
    ASK(syscall(SYS_write, pipes[0], bytes, 1));
    ASK(syscall(SYS_write, pipes[1], bytes, 0));
    ASK(syscall(SYS_write, pipes[1], NOWHERE, 1));
    ASK(syscall(SYS_write, pipes[1], bytes, 3));
    ASK(syscall(SYS_read, pipes[0], NOWHERE, 1));
    ASK(syscall(SYS_read, pipes[0], bytes, 64));
    ASK(syscall(SYS_writev, pipes[1], vector, 2));
    ASK(syscall(SYS_readv, pipes[0], vector, 2));
    ASK(syscall(SYS_writev, pipes[1], vector, -1));
    ASK(syscall(SYS_writev, pipes[1], vector, 1025));
    ASK(syscall(SYS_writev, pipes[1], NOWHERE, 1));
    ASK(syscall(SYS_preadv2, pipes[0], vector, 1, -1L, -1L, 0x8));
    ASK(syscall(SYS_pwrite64, pipes[1], bytes, 1, 0));
    ASK(syscall(SYS_lseek, pipes[0], 0, SEEK_CUR));
    ASK(syscall(SYS_write, file, bytes, 3));
    ASK(syscall(SYS_lseek, file, 0, SEEK_SET));
    ASK(syscall(SYS_read, file, bytes, 64));
    ASK(syscall(SYS_sendto, -1, bytes, 1, 0, NULL, 0));
    ASK(syscall(SYS_sendto, pipes[1], bytes, 1, 0, NULL, 0));
    ASK(syscall(SYS_recvfrom, pipes[0], bytes, 1, 0, NULL, NULL));
    ASK(syscall(SYS_sendto, stream[0], bytes, 3, 0, NULL, 0));
    ASK(syscall(SYS_recvfrom, stream[1], bytes, 64, MSG_PEEK, NULL, NULL));
    ASK(syscall(SYS_recvfrom, stream[1], bytes, 64, 0, NULL, NULL));
    ASK(syscall(SYS_recvfrom, stream[1], bytes, 64, MSG_DONTWAIT, NULL, NULL));
    ASK(syscall(SYS_recvfrom, stream[1], bytes, 64, MSG_DONTWAIT | MSG_WAITALL, NULL, NULL));
    ASK(syscall(SYS_sendto, stream[0], bytes, 3, MSG_OOB, NULL, 0));
    ASK(syscall(SYS_recvfrom, stream[1], bytes, 64, MSG_DONTWAIT, NULL, NULL));
    ASK(syscall(SYS_sendmsg, stream[0], NOWHERE, 0));
    ASK(syscall(SYS_sendmsg, stream[0], &message, 0));
    ASK(syscall(SYS_recvmsg, stream[1], &message, 0));
    ASK(syscall(SYS_sendto, datagram[0], bytes, 5, 0, NULL, 0));
    ASK(syscall(SYS_recvfrom, datagram[1], bytes, 2, MSG_TRUNC, NULL, NULL));
    ASK(syscall(SYS_sendto, datagram[0], bytes, 0, 0, NULL, 0));
    ASK(syscall(SYS_recvfrom, datagram[1], bytes, 2, 0, NULL, NULL));
    ASK(syscall(SYS_accept, stream[0], NULL, NULL));
    ASK(syscall(SYS_accept4, pipes[0], NULL, NULL, 0));
    ASK(syscall(SYS_accept4, stream[0], NULL, NULL, 1));
    ASK(syscall(SYS_sendmmsg, stream[0], NOWHERE, 1, 0));
    ASK(syscall(SYS_recvmmsg, stream[1], NOWHERE, 1, MSG_DONTWAIT, NULL));
    ASK(syscall(SYS_sendfile, stream[0], pipes[0], NULL, 1L));
    ASK(syscall(SYS_sendfile, -1, file, NULL, 1L));
    ASK(syscall(SYS_pwritev2, pipes[1], vector, 1, -1L, -1L, 0x777));
    ASK(syscall(SYS_fallocate, pipes[1], 0, 0L, 1L));
    ASK(syscall(SYS_fallocate, file, 0, -1L, 1L));
    ASK(syscall(SYS_close, -1));
    ASK(syscall(SYS_close, 10000));
    ASK(syscall(SYS_dup2, file, -1));
    ASK(syscall(SYS_dup2, -1, file));
    ASK(syscall(SYS_dup2, file, file) - file);
    ASK(syscall(SYS_dup2, 10000, 10000));
    ASK(syscall(SYS_dup3, file, file, 0));
    ASK(syscall(SYS_dup3, file, 100, 1));
    ASK(syscall(SYS_dup3, file, 100, O_CLOEXEC));
    ASK(syscall(SYS_fcntl, 100, F_GETFD));
    ASK(syscall(SYS_close_range, 100, 99, 0));
    ASK(syscall(SYS_close_range, 100, 100, 64));
    ASK(syscall(SYS_close_range, 100, 100, 0));
    ASK(syscall(SYS_fcntl, 100, F_GETFD));
    ASK(syscall(SYS_fcntl, file, F_SETFL, O_NONBLOCK));
    ASK(syscall(SYS_fcntl, -1, F_SETFL, O_NONBLOCK));
    ASK(syscall(SYS_fcntl, pipes[0], F_SETFL, O_NONBLOCK));
    ASK(syscall(SYS_read, pipes[0], bytes, 1));
    ASK(syscall(SYS_fcntl, pipes[0], F_SETFL, 0));
    ASK(syscall(SYS_ioctl, pipes[0], 0x5421, NOWHERE));
    ASK(syscall(SYS_setsockopt, pipes[0], SOL_SOCKET, SO_RCVTIMEO, &none, 16));
    ASK(syscall(SYS_setsockopt, stream[1], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0, 2000}, 16));
    ASK(syscall(SYS_recvfrom, stream[1], bytes, 64, 0, NULL, NULL));
    ASK(syscall(SYS_read, stream[1], bytes, 64));
    ASK(syscall(SYS_open, NOWHERE, O_RDONLY));
    ASK(syscall(SYS_open, "/nowhere/at/all", O_RDONLY));
    ASK(syscall(SYS_open, "/proc/self/task/1/comm/x", O_RDONLY));
    ASK(syscall(SYS_openat, -1, "relative", O_RDONLY));
    ASK(syscall(SYS_openat, AT_FDCWD, "", O_RDONLY));
    shutdown(stream[0], SHUT_RDWR);
    ASK(syscall(SYS_read, stream[1], bytes, 64));
    ASK(syscall(SYS_sendto, stream[1], bytes, 3, MSG_NOSIGNAL, NULL, 0));
    close(pipes[1]);
    ASK(syscall(SYS_read, pipes[0], bytes, 64));
    close(pipes[0]);
    for (int i = 0; i < 2; i++) {
        close(stream[i]);
        close(datagram[i]);
    }
    close(file);
    unlink("answers.file");
}

static void polls(void)
{
    int pipes[2], instance = epoll_create1(0);
    MUST(pipe(pipes));
    struct pollfd one = {pipes[0], POLLIN, 0}, bad = {10000, POLLIN, 0}, unused = {-1, POLLIN, 0};
    struct epoll_event event = {.events = EPOLLIN};
    fd_set set;
    ASK(syscall(SYS_poll, &one, 1, 0));
    ASK(syscall(SYS_poll, &one, 1, 2));
    ASK(syscall(SYS_poll, &bad, 1, -1));
    ASK((long)bad.revents);
    ASK(syscall(SYS_poll, &unused, 1, 0));
    ASK(syscall(SYS_poll, NULL, 0, 0));
    ASK(syscall(SYS_poll, NOWHERE, 1, 0));
    ASK(syscall(SYS_poll, &one, UINT_MAX, 0));
    ASK(syscall(SYS_ppoll, &one, 1, &none, NULL, 8));
    ASK(syscall(SYS_ppoll, &one, 1, &negative, NULL, 8));
    ASK(syscall(SYS_ppoll, &one, 1, &too_large, NULL, 8));
    ASK(syscall(SYS_ppoll, &one, 1, NOWHERE, NULL, 8));
    ASK(syscall(SYS_ppoll, &one, 1, &none, &no_signals, 4));
    ASK(syscall(SYS_ppoll, &one, 1, &none, NOWHERE, 8));
    ASK(syscall(SYS_ppoll, &one, 1, &(struct timespec){0, 2000000}, &no_signals, 8));
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    ASK(syscall(SYS_select, pipes[0] + 1, &set, NULL, NULL, &(struct timeval){0, 0}));
    ASK(syscall(SYS_select, -1, &set, NULL, NULL, &(struct timeval){0, 0}));
    ASK(syscall(SYS_select, 1, NOWHERE, NULL, NULL, &(struct timeval){0, 0}));
    ASK(syscall(SYS_select, 0, NULL, NULL, NULL, &(struct timeval){-1, 0}));
    ASK(syscall(SYS_select, 0, NULL, NULL, NULL, &(struct timeval){0, 2000}));
    ASK(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &(struct timespec){0, 1000000000}, NULL));
    ASK(syscall(SYS_pselect6, 0, NULL, NULL, NULL, &(struct timespec){0, 0},
                &(struct { const void *at; size_t size; }){&no_signals, 4}));
    FD_ZERO(&set);


    ASK(syscall(SYS_epoll_ctl, instance, EPOLL_CTL_ADD, instance, &event));
    ASK(syscall(SYS_epoll_ctl, instance, EPOLL_CTL_ADD, 10000, &event));
    ASK(syscall(SYS_epoll_ctl, instance, EPOLL_CTL_MOD, pipes[0], &event));
    ASK(syscall(SYS_epoll_ctl, instance, EPOLL_CTL_ADD, pipes[0], &event));
    ASK(syscall(SYS_epoll_ctl, instance, EPOLL_CTL_ADD, pipes[0], &event));
    ASK(syscall(SYS_epoll_ctl, instance, 77, pipes[0], &event));
    ASK(syscall(SYS_epoll_ctl, instance, EPOLL_CTL_ADD, pipes[1], NOWHERE));
    ASK(syscall(SYS_epoll_wait, instance, &event, 1, 0));
    ASK(syscall(SYS_epoll_wait, instance, &event, 0, 0));
    ASK(syscall(SYS_epoll_wait, instance, &event, -1, 0));
    ASK(syscall(SYS_epoll_wait, instance, &event, 0, -1));
    ASK(syscall(SYS_epoll_wait, instance, NOWHERE, 1, 0));
    ASK(syscall(SYS_epoll_wait, pipes[0], &event, 1, 0));
    ASK(syscall(SYS_epoll_wait, -1, &event, 1, 0));
    ASK(syscall(SYS_epoll_pwait, instance, &event, 1, 2, &no_signals, 8UL));
    ASK(syscall(SYS_epoll_pwait, instance, &event, 1, 0, &no_signals, 4UL));
    ASK(syscall(SYS_epoll_pwait, instance, &event, 1, 0, NOWHERE, 8UL));
    ASK(syscall(SYS_epoll_pwait2, instance, &event, 1, &none, NULL, 8UL));
    ASK(syscall(SYS_epoll_pwait2, instance, &event, 1, &too_large, NULL, 8UL));
    MUST(write(pipes[1], "x", 1) != 1);
    ASK(syscall(SYS_epoll_wait, instance, &event, 1, -1));
    ASK(syscall(SYS_epoll_wait, instance, NOWHERE, 1, 0));
    close(instance);
    close(pipes[0]);
    close(pipes[1]);
}

static void ask(void)
{
    descriptors();
    polls();
}
