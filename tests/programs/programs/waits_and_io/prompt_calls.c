/* Calls on sockets that never wait, and on one that another process has made wait again. With an argument only the former. */
#include "connection.h"
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define TURNS 200

static int pair[2];
static sem_t reads;
static volatile sig_atomic_t handled;

static void set_nonblocking(int socket, int on)
{
    int flags = fcntl(socket, F_GETFL);
    MUST(fcntl(socket, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
}

/* Each kind of read, of nothing. */
static int refusals(int socket)
{
    char byte;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    int refused = 0;
    refused += read(socket, &byte, 1) == -1 && errno == EAGAIN;
    refused += readv(socket, &vector, 1) == -1 && errno == EAGAIN;
    refused += recv(socket, &byte, 1, 0) == -1 && errno == EAGAIN;
    refused += recvmsg(socket, &message, 0) == -1 && errno == EAGAIN;
    return refused;
}

/* Sends and receives bytes, and finds the end of the room. */
static void prompt(const char *name, int sockets[2])
{
    static char bytes[1 << 16];
    long moved = 0, refused = 0, sent = 0, got = 0, step;
    struct pollfd one = {.fd = sockets[1], .events = POLLIN};
    set_nonblocking(sockets[0], 1);
    set_nonblocking(sockets[1], 1);
    for (int i = 0; i < TURNS; i++) {
        refused += refusals(sockets[1]) == 4 && poll(&one, 1, 0) == 0;
        moved += send(sockets[0], bytes, 10, 0);
        moved += write(sockets[0], bytes, 10);
        while (poll(&one, 1, -1) != 1) {
        }
        for (long part = 0; part < 20; part += step) {
            step = read(sockets[1], bytes, 20);
            MUST(step <= 0 && errno != EAGAIN);
            step = step < 0 ? 0 : step;
        }
    }
    check(name, refused == TURNS && moved == TURNS * 20, "%ld refused, %ld bytes", refused, moved);
    while ((step = send(sockets[0], bytes, sizeof bytes, 0)) > 0)
        sent += step;
    check("send_without_room", step == -1 && errno == EAGAIN, "%ld, errno %d", step, errno);
    MUST(shutdown(sockets[0], SHUT_WR));
    set_nonblocking(sockets[1], 0);
    while ((step = recv(sockets[1], bytes, sizeof bytes, 0)) > 0)
        got += step;
    check("all_that_was_sent", step == 0 && sent == got, "%ld of %ld", got, sent);
    close(sockets[0]);
    close(sockets[1]);
}

static void asks_not_to_wait(void)
{
    char byte;
    int sockets[2], refused = 0, file = open("/dev/null", O_RDONLY);
    connect_ends(sockets);
    for (int i = 0; i < TURNS; i++)
        refused += recv(sockets[0], &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN;
    check("one_call_that_does_not_wait", refused == TURNS, "%d", refused);
    check("a_file_is_no_socket", recv(file, &byte, 1, MSG_DONTWAIT) == -1 && errno == ENOTSOCK, "%d", errno);
    close(file);
    close(sockets[0]);
    check("a_closed_one", recv(sockets[0], &byte, 1, MSG_DONTWAIT) == -1 && errno == EBADF, "%d", errno);
    close(sockets[1]);
}

/* A pair whose first socket is known not to wait, which another process has changed since. */
static void made_to_wait(void)
{
    int status;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    set_nonblocking(pair[0], 1);
    for (int i = 0; i < 4; i++)
        MUST(refusals(pair[0]) != 4);
    pid_t child = fork();
    if (child == 0) {
        fcntl(pair[0], F_SETFL, 0);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) != child || status != 0);
}

static void on_signal(int signal) { handled = signal; }

static void *writes(void *reader)
{
    sem_wait(&reads);
    settle();
    if (reader != NULL) {
        MUST(pthread_kill(*(pthread_t *)reader, SIGUSR1));
        settle();
    }
    MUST(write(pair[1], "x", 1) != 1);
    return NULL;
}

/* Another thread writes what is waited for: it needs the processor meanwhile. */
static void waits(const char *name, int interrupted, int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    pthread_t other, self = pthread_self();
    char byte = 0;
    made_to_wait();
    handled = 0;
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(pthread_create(&other, NULL, writes, interrupted ? &self : NULL));
    sem_post(&reads);
    long answer = UNSTOPPED(read(pair[0], &byte, 1));
    int ended = interrupted && flags == 0;
    int right = ended ? answer == -1 && errno == EINTR : answer == 1 && byte == 'x';
    check(name, right, "%ld, errno %d", answer, errno);
    check("its_handler", !interrupted || handled == SIGUSR1, "%d", handled);
    MUST(pthread_join(other, NULL));
    close(pair[0]);
    close(pair[1]);
}

static void *body(void *only)
{
    int sockets[2];
    connect_ends(sockets);
    prompt("connections", sockets);
    if (only != NULL)
        return NULL;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    prompt("pair", sockets);
    asks_not_to_wait();
    waits("waits_after_another_process", 0, 0);
    waits("goes_on_after_a_handler", 1, SA_RESTART);
    waits("ends_after_a_handler", 1, 0);
    return NULL;
}

int main(int count, char **words)
{
    pthread_t thread;
    MUST(sem_init(&reads, 0, 0));
    MUST(pthread_create(&thread, NULL, body, count > 1 ? words[1] : NULL));
    MUST(pthread_join(thread, NULL));
    return verdict();
}
