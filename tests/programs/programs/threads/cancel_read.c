/* A thread cancelled in a read that never returns: an empty pipe, a socket, poll. */
#include "case.h"
#include <poll.h>
#include <sys/socket.h>

static int cleaned;

static void cleanup(void *unused)
{
    (void)unused;
    cleaned++;
}

static void *reader(void *descriptor)
{
    char byte;
    pthread_cleanup_push(cleanup, NULL);
    if (read((int)(long)descriptor, &byte, 1) >= 0)
        cleaned = -100;
    pthread_cleanup_pop(0);
    return NULL;
}

static void *poller(void *descriptor)
{
    struct pollfd one = {(int)(long)descriptor, POLLIN, 0};
    pthread_cleanup_push(cleanup, NULL);
    poll(&one, 1, -1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void try(const char *name, void *(*body)(void *), int descriptor)
{
    cleaned = 0;
    pthread_t thread = start(body, (void *)(long)descriptor);
    settle();
    pthread_cancel(thread);
    void *result = join(thread);
    check(name, result == PTHREAD_CANCELED && cleaned == 1, "joined %p, %d handlers", result,
          cleaned);
}

int main(void)
{
    int ends[2], pair[2];
    MUST(pipe(ends));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    try("cancel_read_pipe", reader, ends[0]);
    try("cancel_read_socket", reader, pair[0]);
    try("cancel_poll", poller, ends[0]);

    /* The pipe still works: the cancelled reader took nothing. */
    char byte = 0;
    int moved = write(ends[1], "x", 1) == 1 && read(ends[0], &byte, 1) == 1;
    check("cancel_read_leaves_pipe", moved && byte == 'x', "read %d", byte);
    return verdict();
}
