/* SO_RCVTIMEO and SO_SNDTIMEO: how long a call on a socket waits, set by any thread at any time. */
#include "case.h"
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { MS = 30 };

static int pair[2];
static atomic_int ready;

static void limit(int socket, int option, int ms)
{
    struct timeval value = {ms / 1000, ms % 1000 * 1000};
    MUST(setsockopt(socket, SOL_SOCKET, option, &value, sizeof value));
}

static void timed(const char *name, long answer, long long began)
{
    long long took = now(CLOCK_MONOTONIC) - began;
    check(name, answer == -1 && errno == EAGAIN && took >= MS * 1000000LL,
          "%ld, errno %d after %lld ns", answer, errno, took);
}

static void receive(void)
{
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    long long began = now(CLOCK_MONOTONIC);
    timed("recv", recv(pair[0], &byte, 1, 0), began);
    began = now(CLOCK_MONOTONIC);
    timed("read", read(pair[0], &byte, 1), began);
    began = now(CLOCK_MONOTONIC);
    timed("recvmsg", recvmsg(pair[0], &message, 0), began);
    int copy = dup(pair[0]);
    began = now(CLOCK_MONOTONIC);
    timed("recv_dup", recv(copy, &byte, 1, 0), began);
    close(copy);
}

static void *body(void *unused)
{
    receive();
    return unused;
}

static void *wait_for_ever(void *unused)
{
    (void)unused;
    char byte;
    atomic_store(&ready, 1);
    return (void *)(long)recv(pair[0], &byte, 1, 0);
}

static void nothing(int signal) { (void)signal; }

static void *wait_interrupted(void *unused)
{
    (void)unused;
    char byte;
    atomic_store(&ready, 1);
    errno = 0;
    long answer = recv(pair[0], &byte, 1, 0);
    return (void *)(long)(answer == -1 ? errno : -2);
}

static void await_ready(void)
{
    while (!atomic_exchange(&ready, 0))
        sched_yield();
    settle();
}

int main(void)
{
    char byte = 'x';
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));

    /* Waits without end, then with one, then without again. */
    pthread_t thread = start(wait_for_ever, NULL);
    await_ready();
    limit(pair[0], SO_RCVTIMEO, MS);
    settle();
    settle();
    MUST(write(pair[1], &byte, 1) != 1);
    check("recv_began_without", (long)join(thread) == 1, "it has timed out");
    join(start(body, NULL));
    receive();
    limit(pair[0], SO_RCVTIMEO, 0);
    thread = start(wait_for_ever, NULL);
    await_ready();
    settle();
    MUST(write(pair[1], &byte, 1) != 1);
    check("recv_without_again", (long)join(thread) == 1, "it has timed out");

    /* Another number for it, and the same number for another. */
    int copy = dup(pair[0]), other[2];
    limit(copy, SO_RCVTIMEO, MS);
    long long began = now(CLOCK_MONOTONIC);
    timed("recv_set_by_dup", recv(pair[0], &byte, 1, 0), began);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, other));
    limit(copy, SO_RCVTIMEO, 0);
    limit(other[0], SO_RCVTIMEO, MS);
    MUST(dup2(other[0], copy) != copy);
    began = now(CLOCK_MONOTONIC);
    timed("recv_replaced", recv(copy, &byte, 1, 0), began);

    /* With a limit SA_RESTART restarts nothing. */
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    limit(pair[0], SO_RCVTIMEO, 100000);
    thread = start(wait_interrupted, NULL);
    await_ready();
    void *ended;
    do {
        pthread_kill(thread, SIGUSR1);
        settle();
    } while (pthread_tryjoin_np(thread, &ended) == EBUSY);
    check("recv_interrupted", (long)ended == EINTR, "%ld", (long)ended);
    limit(pair[0], SO_RCVTIMEO, 0);
    thread = start(wait_interrupted, NULL);
    await_ready();
    pthread_kill(thread, SIGUSR1);
    settle();
    MUST(write(pair[1], &byte, 1) != 1);
    check("recv_restarted", (long)join(thread) == -2, "interrupted");

    /* Sending: what went is the answer, else EAGAIN. */
    static char much[1 << 22];
    limit(pair[1], SO_SNDTIMEO, MS);
    began = now(CLOCK_MONOTONIC);
    ssize_t sent = write(pair[1], much, sizeof much);
    check("write_partly",
          sent > 0 && sent < (ssize_t)sizeof much && now(CLOCK_MONOTONIC) - began >= MS * 1000000LL,
          "%zd", sent);
    began = now(CLOCK_MONOTONIC);
    timed("write", write(pair[1], much, sizeof much), began);
    began = now(CLOCK_MONOTONIC);
    timed("send", send(pair[1], much, 1, 0), began);

    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    MUST(bind(listener, (struct sockaddr *)&address, sizeof address));
    MUST(listen(listener, 4));
    limit(listener, SO_RCVTIMEO, MS);
    began = now(CLOCK_MONOTONIC);
    timed("accept", accept(listener, NULL, NULL), began);
    return verdict();
}
