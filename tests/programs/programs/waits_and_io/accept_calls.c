/* Connections to a socket whose accept(2) waits, and to one with O_NONBLOCK; and sockets whose number has listened before, or that
 * listen no more. With an argument only the first (`waits`) or the second (`never`). */
#include "poll_parks.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <semaphore.h>
#include <sys/socket.h>

#define TURNS 200

static struct sockaddr_in address;
static sem_t accepted;

static int a_listener(void)
{
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    MUST(listener < 0);
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    MUST(bind(listener, (struct sockaddr *)&address, sizeof address));
    MUST(listen(listener, 8));
    MUST(getsockname(listener, (struct sockaddr *)&address, &length));
    return listener;
}

static int connected(void)
{
    int client = socket(AF_INET, SOCK_STREAM, 0);
    MUST(client < 0 || connect(client, (struct sockaddr *)&address, sizeof address));
    return client;
}

static void *connects(void *unused)
{
    for (int i = 0; i < TURNS; i++) {
        /* The other thread waits. */
        usleep(500);
        close(connected());
        sem_wait(&accepted);
    }
    return unused;
}

static void waits(int listener)
{
    pthread_t client = start(connects, NULL);
    long taken = 0;
    for (int i = 0; i < TURNS; i++) {
        int connection = accept(listener, NULL, NULL);
        taken += connection >= 0;
        close(connection);
        sem_post(&accepted);
    }
    join(client);
    check("accept_waits", taken == TURNS, "%ld", taken);
}

static void never_waits(int listener)
{
    long taken = 0, refused = 0;
    MUST(fcntl(listener, F_SETFL, O_NONBLOCK));
    for (int i = 0; i < TURNS; i++) {
        int client = connected();
        int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        taken += connection >= 0;
        close(connection);
        refused += accept(listener, NULL, NULL) == -1 && errno == EAGAIN;
        close(client);
    }
    check("accept_never_waits", taken == TURNS, "%ld", taken);
    check("accept_refuses", refused == TURNS, "%ld", refused);
}

static void fails(const char *name, int file, int flags, int expected)
{
    int answer = accept4(file, NULL, NULL, flags);
    check(name, answer == -1 && errno == expected, "got %d, errno %d", answer, errno);
}

static void *body(void *only)
{
    parks();
    int listener = a_listener();
    if (only != NULL) {
        (strcmp(only, "waits") == 0 ? waits : never_waits)(listener);
        return NULL;
    }
    waits(listener);
    fails("accept_with_unknown_flags", listener, 1, EINVAL);
    never_waits(listener);
    fails("accept_of_nothing", listener, 0, EAGAIN);
    /* O_NONBLOCK goes, and then the socket listens no more. */
    MUST(fcntl(listener, F_SETFL, 0));
    close(connected());
    int connection = accept(listener, NULL, NULL);
    check("accept_waits_again", connection >= 0, "errno %d", errno);
    close(connection);
    MUST(shutdown(listener, SHUT_RD));
    fails("accept_after_shutdown", listener, 0, EINVAL);
    /* By the same number, one that does not listen, and one of datagrams. */
    int other = socket(AF_INET, SOCK_STREAM, 0), datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    MUST(dup2(other, listener) != listener);
    fails("accept_of_another", listener, 0, EINVAL);
    MUST(dup2(datagrams, listener) != listener);
    fails("accept_of_datagrams", listener, 0, EOPNOTSUPP);
    return NULL;
}

int main(int count, char **words)
{
    MUST(sem_init(&accepted, 0, 0));
    parks_begin();
    join(start(body, count > 1 ? words[1] : NULL));
    return verdict();
}
