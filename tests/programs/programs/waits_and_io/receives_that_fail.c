/* Receives that take the data and then find the address's length wrong: they fail at once, and take nothing more. */
#include "case.h"
#include <netinet/in.h>
#include <sys/socket.h>

static void fails(const char *name, int type, int is_behind)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, from;
    socklen_t length = sizeof address, wrong = (socklen_t)-1;
    int own = socket(AF_INET, type, 0), peer = socket(AF_INET, type, 0);
    char room[8] = "";
    MUST(bind(own, (struct sockaddr *)&address, length));
    MUST(getsockname(own, (struct sockaddr *)&address, &length));
    if (type == SOCK_STREAM) MUST(listen(own, 1));
    MUST(connect(peer, (struct sockaddr *)&address, length));
    if (type == SOCK_STREAM) own = accept(own, NULL, NULL);
    MUST(send(peer, "a", 1, 0) != 1);
    if (is_behind && type == SOCK_DGRAM) MUST(send(peer, "b", 1, 0) != 1);
    settle();
    ssize_t answer = recvfrom(own, room, sizeof room, 0, (struct sockaddr *)&from, &wrong);
    check("fails", answer == -1 && errno == EINVAL, "%s: %zd, errno %d", name, answer, errno);
    if (type == SOCK_DGRAM) {
        answer = recv(own, room, sizeof room, MSG_DONTWAIT);
        int is_right = is_behind ? answer == 1 && room[0] == 'b' : answer == -1 && errno == EAGAIN;
        check("next", is_right, "%s: %zd, '%c', errno %d", name, answer, room[0], errno);
    }
    close(own);
    close(peer);
}

static void *body(void *unused)
{
    fails("stream", SOCK_STREAM, 0);
    fails("datagram", SOCK_DGRAM, 0);
    fails("two datagrams", SOCK_DGRAM, 1);
    return unused;
}

int main(void)
{
    join(start(body, NULL));
    body(NULL);
    return verdict();
}
