/* Descriptors that the program itself made non-blocking answer EAGAIN at once, in every thread. */
#include "case.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>

static int ends[2], pair[2];
static atomic_int wrong;

static void *body(void *unused)
{
    char byte;
    for (int i = 0; i < 100; i++) {
        errno = 0;
        if (read(ends[0], &byte, 1) != -1 || errno != EAGAIN)
            atomic_fetch_add(&wrong, 1);
        errno = 0;
        if (recv(pair[0], &byte, 1, MSG_DONTWAIT) != -1 || errno != EAGAIN)
            atomic_fetch_add(&wrong, 1);
        sched_yield();
    }
    return unused;
}

int main(void)
{
    MUST(pipe2(ends, O_NONBLOCK));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(body, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    check("nonblocking", wrong == 0, "%d wrong answers", wrong);

    struct timeval brief = {0, 30000};
    char byte;
    MUST(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &brief, sizeof brief));
    errno = 0;
    ssize_t got = recv(pair[0], &byte, 1, 0);
    check("receive_timeout", got == -1 && errno == EAGAIN, "%zd, errno %d", got, errno);

    /* A full pipe. */
    long filled = 0;
    while (write(ends[1], "0123456789abcdef", 16) == 16)
        filled += 16;
    check("pipe_full", errno == EAGAIN && filled >= 4096, "errno %d after %ld bytes", errno, filled);
    return verdict();
}
