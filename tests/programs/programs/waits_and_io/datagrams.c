/* Sockets for datagrams: shutdown(2) ends a wait for one, also where it comes first. A write of nothing sends an empty one. */
#include "case.h"
#include <netinet/in.h>
#include <sys/socket.h>

static void *receiver(void *socket)
{
    char room[8];
    errno = 0;
    return (void *)recv(*(int *)socket, room, sizeof room, 0);
}

static void shut(const char *name, int socket)
{
    pthread_t thread = start(receiver, &socket);
    settle();
    shutdown(socket, SHUT_RDWR);
    long answer = (long)join(thread);
    check("shut_meanwhile", answer == 0, "%s: %ld", name, answer);
    answer = (long)receiver(&socket);
    check("shut_before", answer == 0, "%s: %ld, errno %d", name, answer, errno);
}

static int bound(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int new = socket(AF_INET, SOCK_DGRAM, 0);
    MUST(bind(new, (struct sockaddr *)&address, length));
    return new;
}

static int connected_to_itself(void)
{
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    int new = bound();
    MUST(getsockname(new, (struct sockaddr *)&address, &length));
    MUST(connect(new, (struct sockaddr *)&address, length));
    return new;
}

static void *body(void *unused)
{
    int pair[2], own = connected_to_itself();
    char room[8];
    ssize_t written = write(own, "ab", 0);
    MUST(write(own, "ab", 2) != 2);
    ssize_t first = recv(own, room, sizeof room, 0);
    ssize_t second = recv(own, room, sizeof room, MSG_DONTWAIT);
    int holds = written == 0 && first == 0 && second == 2;
    check("empty_datagram", holds, "wrote %zd, received %zd and %zd", written, first, second);
    shut("connected", own);
    shut("not connected", bound());
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    shut("local", pair[0]);
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    shut("local, in sequence", pair[0]);
    return unused;
}

int main(void)
{
    join(start(body, NULL));
    body(NULL);
    return verdict();
}
