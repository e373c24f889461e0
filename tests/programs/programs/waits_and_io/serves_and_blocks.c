/* Threads that serve each other over sockets without a pause, so that nobody computes and nobody sleeps, and one that now and
 * then waits in the kernel (open(2) of a FIFO) for a thread that waits its turn among them. */
#include "case.h"
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define PAIRS 4
#define ROUNDS 40
#define BETWEEN 300

static int pairs[PAIRS][2];
static atomic_long served, blocks, met;
static atomic_int stops;

/* Sends back what comes, until the other end is closed. */
static void *answers(void *end)
{
    int file = *(int *)end;
    char byte;
    for (;;) {
        struct pollfd wait = {file, POLLIN, 0};
        if (poll(&wait, 1, -1) != 1 || read(file, &byte, 1) != 1 || write(file, &byte, 1) != 1)
            return NULL;
        atomic_fetch_add(&served, 1);
    }
}

static void *asks(void *end)
{
    int file = *(int *)end;
    char byte = 1;
    while (!atomic_load(&stops) && write(file, &byte, 1) == 1 && read(file, &byte, 1) == 1) {
    }
    MUST(shutdown(file, SHUT_RDWR));
    return NULL;
}

static void await_served(long more)
{
    long from = atomic_load(&served);
    while (atomic_load(&served) - from < more)
        usleep(100);
}

static void meet(int how)
{
    int file = open("fifo", how);
    if (file < 0)
        check("fifo", 0, "errno %d", errno);
    close(file);
}

/* Opens the other end of the FIFO when the others have gone on for a while. */
static void *opens(void *unused)
{
    for (long round = 1; round <= ROUNDS; round++) {
        while (atomic_load(&blocks) < round)
            usleep(100);
        await_served(BETWEEN);
        meet(O_WRONLY);
        /* Closed: a reader that comes from here on is the next round's. */
        atomic_store(&met, round);
    }
    return unused;
}

int main(void)
{
    pthread_t threads[2 * PAIRS];
    MUST(mkfifo("fifo", 0600));
    for (int i = 0; i < PAIRS; i++) {
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]));
        threads[2 * i] = start(answers, &pairs[i][0]);
        threads[2 * i + 1] = start(asks, &pairs[i][1]);
    }
    pthread_t opener = start(opens, NULL);
    for (long round = 1; round <= ROUNDS; round++) {
        await_served(BETWEEN);
        atomic_store(&blocks, round);
        meet(O_RDONLY);
        while (atomic_load(&met) < round)
            usleep(100);
    }
    join(opener);
    atomic_store(&stops, 1);
    for (int i = 0; i < 2 * PAIRS; i++)
        join(threads[i]);
    check("blocked", atomic_load(&blocks) == ROUNDS, "%ld times", atomic_load(&blocks));
    return verdict();
}
