/* A TCP connection over the loopback device. */
#ifndef CONNECTION_H
#define CONNECTION_H
#include "case.h"
#include <netinet/in.h>
#include <sys/socket.h>

/* Connects the first end to the second. */
static void connect_ends(int ends[2])
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    MUST(bind(listener, (struct sockaddr *)&name, size));
    MUST(listen(listener, 1));
    MUST(getsockname(listener, (struct sockaddr *)&name, &size));
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    MUST(connect(ends[0], (struct sockaddr *)&name, size));
    ends[1] = accept(listener, NULL, NULL);
    MUST(ends[1] < 0);
    close(listener);
}
#endif
