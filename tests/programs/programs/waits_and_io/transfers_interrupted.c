/* Calls that move bytes and end before all are moved: by a handler, by a time limit, by an end that is closed; and
 * calls of which nothing may be divided. */
#include "case.h"
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { SIZE = 4 << 20 };

static char memory[SIZE];
static int ends[2];
static atomic_int ready, handled, broken;
static long answer;
static int error;

static void handle(int signal) { (void)signal, atomic_fetch_add(&handled, 1); }
static void on_broken(int signal) { (void)signal, atomic_fetch_add(&broken, 1); }

static void open_pipe(void)
{
    int both[2];
    MUST(pipe(both));
    ends[0] = both[1];
    ends[1] = both[0];
}

static void open_unix(void) { MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends)); }

static struct iovec parts[4];

static long by_write(void) { return write(ends[0], memory, SIZE); }
static long by_writev(void) { return writev(ends[0], parts, 4); }
static long by_send(void) { return send(ends[0], memory, SIZE, 0); }
static long by_sendmsg(void)
{
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 4};
    return sendmsg(ends[0], &message, 0);
}

static long (*call)(void);

static void *body(void *unused)
{
    atomic_store(&ready, 1);
    answer = call();
    error = errno;
    atomic_store(&ready, 2);
    return unused;
}

static long drained(void)
{
    static char room[1 << 16];
    long got = 0, more;
    while ((more = recv(ends[1], room, sizeof room, MSG_DONTWAIT)) > 0 || (more == -1 && errno == ENOTSOCK && (more = read(ends[1], room, sizeof room)) > 0)) {
        got += more;
    }
    return got;
}

/* Sends the thread the signal until its call has ended: it may come before the call. */
static void *interrupted(pthread_t thread)
{
    while (atomic_load(&ready) < 2) {
        settle();
        pthread_kill(thread, SIGUSR1);
    }
    return join(thread);
}

static void one(const char *stream, void (*open_it)(void), const char *name, long (*by)(void))
{
    char verdict[80];
    call = by;
    open_it();
    atomic_store(&ready, 0);
    interrupted(start(body, NULL));
    snprintf(verdict, sizeof verdict, "%s_%s_in_part", name, stream);
    long moved = answer;
    check(verdict, moved > 0 && moved < SIZE, "%ld, errno %d", moved, error);
    /* It is full now. */
    atomic_store(&ready, 0);
    interrupted(start(body, NULL));
    snprintf(verdict, sizeof verdict, "%s_%s_not_at_all", name, stream);
    check(verdict, answer == -1 && error == EINTR, "%ld, errno %d", answer, error);
    close(ends[0]);
    snprintf(verdict, sizeof verdict, "%s_%s_arrived", name, stream);
    long got = drained();
    check(verdict, got == moved, "%ld of %ld", got, moved);
    close(ends[1]);

    /* The reader goes away. */
    open_it();
    atomic_store(&ready, 0);
    atomic_store(&broken, 0);
    pthread_t thread = start(body, NULL);
    while (atomic_load(&ready) == 0) {
        sched_yield();
    }
    /* More than fits has begun when there is as much as this. */
    char byte[4096];
    for (int i = 0; i < 4; i++) {
        MUST(read(ends[1], byte, sizeof byte) != sizeof byte);
    }
    settle();
    close(ends[1]);
    join(thread);
    snprintf(verdict, sizeof verdict, "%s_%s_closed", name, stream);
    check(verdict, answer >= 16384 && answer < SIZE, "%ld, errno %d", answer, error);
    snprintf(verdict, sizeof verdict, "%s_%s_signals", name, stream);
    check(verdict, broken == (open_it == open_pipe), "%d", broken);
    long then = call();
    check("and_then", then == -1 && (errno == EPIPE || errno == ECONNRESET), "%ld, errno %d", then, errno);
    close(ends[0]);
}

/* A time limit counts for all of the call. */
static void limited(const char *name, long (*by)(void))
{
    char verdict[80];
    struct timeval limit = {0, 60000};
    open_unix();
    MUST(setsockopt(ends[0], SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    long long began = now(CLOCK_MONOTONIC);
    long moved = by();
    long long took = now(CLOCK_MONOTONIC) - began;
    snprintf(verdict, sizeof verdict, "%s_limited", name);
    check(verdict, moved > 0 && moved < SIZE && took >= 60000000, "%ld, errno %d", moved, errno);
    long then = by();
    snprintf(verdict, sizeof verdict, "%s_limited_again", name);
    check(verdict, then == -1 && errno == EAGAIN, "%ld, errno %d", then, errno);
    long got = drained();
    check("limited_arrived", got == moved, "%ld of %ld", got, moved);
    close(ends[0]);
    close(ends[1]);
}

static void *datagrams(void *unused)
{
    for (int i = 0; i < 200; i++) {
        long sent = send(ends[0], memory, 1000 + (size_t)i * 37, 0);
        if (sent != 1000 + i * 37) {
            return (void *)(sent * 1000 + i);
        }
    }
    return unused;
}

static void whole(const char *name, int type)
{
    MUST(socketpair(AF_UNIX, type, 0, ends));
    pthread_t thread = start(datagrams, NULL);
    settle();
    int good = 0;
    static char room[1 << 16];
    for (int i = 0; i < 200; i++) {
        good += recv(ends[1], room, sizeof room, MSG_WAITALL) == 1000 + i * 37;
    }
    void *failed = join(thread);
    check(name, good == 200 && failed == NULL, "%d, %ld", good, (long)failed);
    close(ends[0]);
    close(ends[1]);
}

/* What never waits, whatever the socket's flags say. */
static void never_waits(void)
{
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    long got = recvmsg(udp, &message, MSG_ERRQUEUE);
    check("error_queue", got == -1 && errno == EAGAIN, "%ld, errno %d", got, errno);
    got = recv(udp, &byte, 1, MSG_ERRQUEUE);
    check("error_queue_recv", got == -1 && errno == EAGAIN, "%ld, errno %d", got, errno);
    close(udp);
    open_unix();
    got = send(ends[0], memory, SIZE, MSG_DONTWAIT);
    check("dont_wait", got > 0 && got < SIZE, "%ld, errno %d", got, errno);
    got = send(ends[0], memory, SIZE, MSG_DONTWAIT);
    check("dont_wait_again", got == -1 && errno == EAGAIN, "%ld, errno %d", got, errno);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    struct sigaction action = {.sa_handler = handle};
    MUST(sigaction(SIGUSR1, &action, NULL));
    action.sa_handler = on_broken;
    MUST(sigaction(SIGPIPE, &action, NULL));
    for (int i = 0; i < 4; i++) {
        parts[i] = (struct iovec){memory + i * SIZE / 4, SIZE / 4};
    }
    /* The process has had a thread. */
    open_unix();
    close(ends[1]);
    call = by_send;
    join(start(body, NULL));
    close(ends[0]);
    one("unix", open_unix, "write", by_write);
    one("unix", open_unix, "writev", by_writev);
    one("unix", open_unix, "send", by_send);
    one("unix", open_unix, "sendmsg", by_sendmsg);
    one("pipe", open_pipe, "write", by_write);
    one("pipe", open_pipe, "writev", by_writev);
    limited("write", by_write);
    limited("writev", by_writev);
    limited("send", by_send);
    limited("sendmsg", by_sendmsg);
    whole("datagrams", SOCK_DGRAM);
    whole("seqpackets", SOCK_SEQPACKET);
    never_waits();
    return verdict();
}
