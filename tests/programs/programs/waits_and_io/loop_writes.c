/* A server in which threads of a pool answer for an event loop, and wake it through an eventfd: nothing is written but by those
 * threads, and by who wakes a processor. Counted by the kernel (proc_pid_io(5), which does not count send(2)). */
#include "case.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define CLIENTS 2
#define REQUESTS 2000
#define WORKERS 3
/* With a time limit, somebody has to wait for that when the loop does not. */
#define MINUTE_MS 60000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int asked[CLIENTS], answered[CLIENTS], is_over, done;

/* Of which client a request waits; -1: of none. */
static int next_asked(void)
{
    for (int client = 0; client < CLIENTS; client++)
        if (asked[client])
            return client;
    return -1;
}

static void *work(void *unused)
{
    uint64_t one = 1;
    pthread_mutex_lock(&lock);
    while (!is_over) {
        int client = next_asked();
        if (client < 0) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        asked[client] = 0;
        answered[client] = 1;
        pthread_mutex_unlock(&lock);
        if (write(done, &one, sizeof one) != sizeof one)
            exit(1);
        pthread_mutex_lock(&lock);
    }
    pthread_mutex_unlock(&lock);
    return unused;
}

/* Asks, and waits for the answer. */
static void ask(int server)
{
    char byte = 0;
    for (int i = 0; i < REQUESTS; i++)
        if (send(server, &byte, 1, 0) != 1 || UNSTOPPED(recv(server, &byte, 1, 0)) != 1)
            _exit(1);
    _exit(0);
}

/* Serves all requests of all clients. */
static void serve(const int sockets[CLIENTS])
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = -1}, events[CLIENTS + 1];
    char byte;
    int loop = epoll_create1(0);
    MUST(epoll_ctl(loop, EPOLL_CTL_ADD, done, &event));
    for (int client = 0; client < CLIENTS; client++) {
        event.data.fd = client;
        MUST(epoll_ctl(loop, EPOLL_CTL_ADD, sockets[client], &event));
    }
    for (int left = CLIENTS * REQUESTS; left > 0;) {
        int count = UNSTOPPED(epoll_wait(loop, events, CLIENTS + 1, MINUTE_MS));
        MUST(count < 1);
        for (int i = 0; i < count; i++) {
            int client = events[i].data.fd;
            pthread_mutex_lock(&lock);
            if (client >= 0 && recv(sockets[client], &byte, 1, MSG_DONTWAIT) == 1) {
                asked[client] = 1;
                pthread_cond_signal(&changed);
            }
            for (client = 0; client < CLIENTS; client++)
                if (answered[client]) {
                    answered[client] = 0;
                    left--;
                    MUST(send(sockets[client], &byte, 1, 0) != 1);
                }
            pthread_mutex_unlock(&lock);
        }
    }
}

static long writes(void)
{
    FILE *file = fopen("/proc/self/io", "r");
    char line[64];
    long count = -1;
    MUST(file == NULL);
    while (fgets(line, sizeof line, file) != NULL)
        sscanf(line, "syscw: %ld", &count);
    fclose(file);
    return count;
}

int main(void)
{
    int sockets[CLIENTS];
    for (int client = 0; client < CLIENTS; client++) {
        int pair[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
        sockets[client] = pair[0];
        pid_t child = fork();
        MUST(child < 0);
        if (child == 0)
            ask(pair[1]);
        close(pair[1]);
    }
    done = eventfd(0, EFD_NONBLOCK);
    pthread_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        workers[i] = start(work, NULL);
    long before = writes();
    serve(sockets);
    long count = writes() - before, requests = CLIENTS * REQUESTS;
    /* One for a request, and one for each second to wake somebody. */
    check("loop_writes", before >= 0 && 2 * count <= 3 * requests, "%ld for %ld requests", count,
          requests);

    pthread_mutex_lock(&lock);
    is_over = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < WORKERS; i++)
        join(workers[i]);
    for (int client = 0; client < CLIENTS; client++) {
        int status;
        MUST(wait(&status) < 0 || status != 0);
    }
    return verdict();
}
