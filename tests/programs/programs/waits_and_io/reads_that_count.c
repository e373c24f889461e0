/* Reads that wait for more than a first byte, or for a time: SO_RCVLOWAT of sockets, VMIN and VTIME of terminals. */
#include "connection.h"
#include <fcntl.h>
#include <termios.h>

static int ends[2], terminal, other_side;

static void *in_two_parts(void *unused)
{
    settle();
    MUST(write(ends[0], "12345", 5) != 5);
    settle();
    MUST(write(ends[0], "67890", 5) != 5);
    return unused;
}

static void low_mark(const char *name)
{
    char room[100];
    pthread_t thread = start(in_two_parts, NULL);
    long got = recv(ends[1], room, sizeof room, 0);
    check(name, got >= 8, "%ld", got);
    join(thread);
    close(ends[0]);
    close(ends[1]);
}

static void tcp(int mark)
{
    connect_ends(ends);
    MUST(setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark));
}

static void raw(int least, int tenths)
{
    struct termios settings;
    MUST(tcgetattr(terminal, &settings));
    cfmakeraw(&settings);
    settings.c_cc[VMIN] = (cc_t)least;
    settings.c_cc[VTIME] = (cc_t)tenths;
    MUST(tcsetattr(terminal, TCSANOW, &settings));
}

static void *types(void *unused)
{
    settle();
    MUST(write(other_side, "abc", 3) != 3);
    return unused;
}

static void *body(void *unused)
{
    int mark = 8;
    char room[100];
    tcp(mark);
    low_mark("mark_tcp");
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    MUST(setsockopt(ends[1], SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark));
    low_mark("mark_unix");

    raw(0, 0);
    long got = read(terminal, room, sizeof room);
    check("nothing_at_once", got == 0, "%ld, errno %d", got, errno);
    raw(0, 1);
    long long began = now(CLOCK_MONOTONIC);
    got = read(terminal, room, sizeof room);
    long long took = now(CLOCK_MONOTONIC) - began;
    check("nothing_in_time", got == 0 && took >= 80 * 1000 * 1000, "%ld after %lld ns", got, took);
    raw(3, 0);
    pthread_t thread = start(types, NULL);
    got = read(terminal, room, sizeof room);
    check("three", got == 3, "%ld, errno %d", got, errno);
    join(thread);
    raw(5, 0);
    thread = start(types, NULL);
    got = read(terminal, room, 2);
    check("two_of_five", got == 2, "%ld, errno %d", got, errno);
    join(thread);
    raw(1, 0);
    got = read(terminal, room, sizeof room);
    check("the_third", got == 1, "%ld, errno %d", got, errno);
    return unused;
}

int main(void)
{
    other_side = posix_openpt(O_RDWR | O_NOCTTY);
    MUST(grantpt(other_side));
    MUST(unlockpt(other_side));
    terminal = open(ptsname(other_side), O_RDWR | O_NOCTTY);
    join(start(body, NULL));
    body(NULL);
    return verdict();
}
