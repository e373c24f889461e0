/* Reads of TCP connections that take all that there is, after which a runtime may let the next one wait without a try:
 * what comes then, and what is there already although the read got less than there was room for. */
#include "connection.h"
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { WARM = 8, MANY = 2000 };

static int ours, theirs;
static char room[200];

static void connected(void)
{
    int on = 1, ends[2];
    connect_ends(ends);
    theirs = ends[0];
    ours = ends[1];
    MUST(setsockopt(theirs, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    MUST(setsockopt(ours, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
}

static void say(const char *text) { MUST(write(theirs, text, strlen(text)) != (ssize_t)strlen(text)); }

static void *echoes(void *unused)
{
    char byte;
    for (int i = 0; i < WARM; i++) {
        settle();
        say("x");
        MUST(read(theirs, &byte, 1) != 1);
    }
    return unused;
}

/* Waits for the connection and empties it some times. */
static void gets_known(void)
{
    pthread_t thread = start(echoes, NULL);
    for (int i = 0; i < WARM; i++) {
        MUST(recv(ours, room, sizeof room, 0) != 1);
        MUST(write(ours, "y", 1) != 1);
    }
    join(thread);
}

static void known(void)
{
    connected();
    gets_known();
}

static void done(void)
{
    close(ours);
    close(theirs);
}

static void reads(const char *name, long wanted)
{
    long got = recv(ours, room, sizeof room, 0);
    check(name, got == wanted, "%ld in place of %ld, errno %d", got, wanted, errno);
}

static void *answers(void *unused)
{
    char more[100];
    for (int i = 0; i < MANY; i++)
        if (read(theirs, more, sizeof more) != 1 || write(theirs, "z", 1) != 1)
            return "failed";
    return unused;
}

static void in_turn(void)
{
    known();
    pthread_t thread = start(answers, NULL);
    int turns = 0;
    while (turns < MANY && write(ours, "a", 1) == 1 && read(ours, room, sizeof room) == 1)
        turns++;
    join(thread);
    check("in_turn", turns == MANY, "%d", turns);
    done();
}

static void ends(void)
{
    known();
    say("abc");
    MUST(shutdown(theirs, SHUT_WR));
    settle();
    reads("before_the_end", 3);
    reads("the_end", 0);
    reads("the_end_again", 0);
    done();
}

static void *shuts(void *unused)
{
    settle();
    MUST(shutdown(theirs, SHUT_WR));
    return unused;
}

static void *shuts_ours(void *unused)
{
    settle();
    MUST(shutdown(ours, SHUT_RD));
    return unused;
}

static void *resets(void *unused)
{
    struct linger none = {.l_onoff = 1, .l_linger = 0};
    settle();
    MUST(setsockopt(theirs, SOL_SOCKET, SO_LINGER, &none, sizeof none));
    close(theirs);
    return unused;
}

static void ended_while_waiting(const char *name, void *(*how)(void *), long wanted)
{
    known();
    say("abc");
    MUST(recv(ours, room, sizeof room, 0) != 3);
    pthread_t thread = start(how, NULL);
    reads(name, wanted);
    join(thread);
    close(ours);
    if (how != resets)
        close(theirs);
}

static void urgent(void)
{
    int on = 1;
    known();
    MUST(setsockopt(ours, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
    say("ab");
    MUST(send(theirs, "c", 1, MSG_OOB) != 1);
    say("d");
    settle();
    reads("before_the_mark", 2);
    reads("behind_the_mark", 2);
    done();
}

static void peeked(void)
{
    known();
    say("abc");
    settle();
    MUST(recv(ours, room, sizeof room, MSG_PEEK) != 3);
    reads("after_a_look", 3);
    done();
}

static atomic_long taken;

static void *takes(void *number)
{
    char more[100];
    for (;;) {
        long got = read(*(int *)number, more, sizeof more);
        if (got <= 0)
            return got == 0 ? NULL : "failed";
        atomic_fetch_add(&taken, got);
    }
}

static void several(const char *name, int other)
{
    taken = 0;
    pthread_t one = start(takes, &ours), two = start(takes, &other);
    for (int i = 0; i < MANY; i++) {
        say("abc");
        if (i % 64 == 0)
            settle();
    }
    MUST(shutdown(theirs, SHUT_WR));
    join(one);
    join(two);
    check(name, taken == 3 * MANY, "%ld", (long)taken);
    done();
}

static void shared(void)
{
    known();
    several("two_readers", ours);
    known();
    int other = dup(ours);
    several("two_numbers", other);
    close(other);
}

static void inherited(void)
{
    known();
    say("abcdefgh");
    pid_t child = fork();
    if (child == 0)
        _exit(read(ours, room, 5) == 5 ? 0 : 1);
    int status;
    MUST(waitpid(child, &status, 0) != child || status != 0);
    reads("what_a_child_left", 3);
    done();
}

static void number_again(void)
{
    int pair[2];
    known();
    say("abc");
    MUST(recv(ours, room, sizeof room, 0) != 3);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    MUST(dup2(pair[1], ours) != ours);
    MUST(write(pair[0], "one", 3) != 3);
    MUST(write(pair[0], "other", 5) != 5);
    settle();
    reads("a_datagram", 3);
    reads("another_datagram", 5);
    close(pair[0]);
    close(pair[1]);
    done();
}

/* A read ends behind descriptors (unix(7)). */
static void with_descriptors(void)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec text = {.iov_base = "ab", .iov_len = 2};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = &control};
    int pair[2];
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    ours = pair[0];
    theirs = pair[1];
    gets_known();
    message.msg_controllen = sizeof control;
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &theirs, sizeof(int));
    MUST(sendmsg(theirs, &message, 0) != 2);
    say("cde");
    settle();
    reads("with_descriptors", 2);
    reads("behind_descriptors", 3);
    done();
}

static void changed(void)
{
    struct timeval time = {.tv_usec = 20000};
    known();
    say("abc");
    MUST(recv(ours, room, sizeof room, 0) != 3);
    MUST(fcntl(ours, F_SETFL, O_NONBLOCK));
    errno = 0;
    long got = recv(ours, room, sizeof room, 0);
    check("not_blocking", got == -1 && errno == EAGAIN, "%ld, errno %d", got, errno);
    MUST(fcntl(ours, F_SETFL, 0));
    MUST(setsockopt(ours, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    errno = 0;
    got = recv(ours, room, sizeof room, 0);
    check("a_time_limit", got == -1 && errno == EAGAIN, "%ld, errno %d", got, errno);
    errno = 0;
    got = recv(ours, (void *)-4096L, 100, 0);
    check("no_memory", got == -1 && (errno == EFAULT || errno == EAGAIN), "%ld, errno %d", got, errno);
    errno = 0;
    got = recv(ours, room, sizeof room, MSG_DONTWAIT);
    check("that_time", got == -1 && errno == EAGAIN, "%ld, errno %d", got, errno);
    got = read(ours, room, 0);
    check("no_room", got == 0, "%ld, errno %d", got, errno);
    done();
}

static void *body(void *unused)
{
    in_turn();
    ends();
    ended_while_waiting("an_end", shuts, 0);
    ended_while_waiting("an_own_end", shuts_ours, 0);
    ended_while_waiting("a_reset", resets, -1);
    urgent();
    peeked();
    shared();
    inherited();
    number_again();
    with_descriptors();
    changed();
    return unused;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    join(start(body, NULL));
    body(NULL);
    return verdict();
}
