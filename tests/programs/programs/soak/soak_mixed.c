/* Every kind of wait at once, in amounts of work and not of time: computing, a ring of pipes, a
 * condition passed around, semaphores, sleeps, epoll, sockets, files, memory, short threads, a stack pointer
 * in the heap. Handlers for SIGUSR1 and SIGALRM, which anybody may send. What it prints does not depend on
 * scheduling. */
#include "case.h"
#include "stack_pointer.h"
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define RING 8
/* A part of the work, if there is an argument. */
static long part = 1;
#define TURNS (3000 / part)
#include "soak_waits.h"

static __thread volatile sig_atomic_t has_handled;

static void handler(int signal)
{
    (void)signal;
    has_handled = 1;
}

static void *compute(void *out)
{
    uint64_t state = 1;
    for (long i = 0; i < 60 * 1000 * 1000 / part; i++)
        state = state * 6364136223846793005u + (state >> 33);
    *(uint64_t *)out = state;
    return NULL;
}

static sem_t ping, pong;

static void *answers(void *unused)
{
    for (int i = 0; i < TURNS; i++) {
        while (sem_wait(&ping) != 0) {
        }
        sem_post(&pong);
    }
    return unused;
}

static void *sleeps(void *out)
{
    for (int i = 0; i < 200 / part; i++) {
        struct timespec left = {0, 500 * 1000};
        while (nanosleep(&left, &left) != 0) {
        }
        ++*(long *)out;
    }
    return NULL;
}

static void *echoes(void *fd)
{
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, (int)(long)fd, &event));
    for (int i = 0; i < TURNS; i++) {
        MUST(UNSTOPPED(epoll_wait(epoll, &event, 1, -1)) != 1);
        long word;
        MUST(get((int)(long)fd, &word));
        MUST(put((int)(long)fd, word * 2));
    }
    close(epoll);
    return NULL;
}

static void *asks(void *fd)
{
    for (long i = 0; i < TURNS; i++) {
        MUST(put((int)(long)fd, i));
        struct pollfd one = {.fd = (int)(long)fd, .events = POLLIN};
        int ready;
        while ((ready = poll(&one, 1, 60 * 1000)) != 1)
            MUST(ready >= 0 || errno != EINTR);
        long word;
        MUST(get((int)(long)fd, &word));
        MUST(word != 2 * i);
    }
    return NULL;
}

static void *files(void *out)
{
    char name[] = "soak-XXXXXX", page[4096];
    int fd = mkstemp(name);
    MUST(fd < 0);
    for (int i = 0; i < 300; i++) {
        memset(page, i, sizeof page);
        MUST(pwrite(fd, page, sizeof page, i * 4096L) != sizeof page);
    }
    for (int i = 0; i < 300; i++) {
        MUST(pread(fd, page, sizeof page, i * 4096L) != sizeof page);
        for (size_t at = 0; at < sizeof page; at++)
            *(long *)out += page[at] == (char)i;
    }
    close(fd);
    unlink(name);
    return NULL;
}

static void *memory(void *out)
{
    for (int i = 0; i < 200 / part; i++) {
        char *map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(map == MAP_FAILED);
        for (int at = 0; at < 1 << 20; at += 4096)
            map[at] = 1;
        for (int at = 0; at < 1 << 20; at += 4096)
            *(long *)out += map[at];
        munmap(map, 1 << 20);
    }
    return NULL;
}

enum { HEAP = 1 << 16 };

/* Computes with the stack pointer in a buffer of the heap, which stays as it is unless a handler runs there. */
static void *away(void *out)
{
    char *bytes = malloc(HEAP);
    for (int i = 0; i < 200 / part; i++) {
        memset(bytes, i, HEAP);
        has_handled = 0;
        compute_at(bytes + HEAP / 2, 1000 * 1000);
        for (int at = 0; at < HEAP; at++)
            *(long *)out += bytes[at] != (char)i && !has_handled;
    }
    free(bytes);
    return NULL;
}

static void *shortly(void *word)
{
    ++*(long *)word;
    return word;
}

static void *begins_threads(void *out)
{
    for (int i = 0; i < 300 / part; i++)
        join(start(shortly, out));
    return NULL;
}

int main(int count_of_words, char **words)
{
    if (count_of_words > 1)
        part = atol(words[1]);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(sigaction(SIGALRM, &action, NULL));
    uint64_t sums[2];
    long slept = 0, right = 0, touched = 0, begun = 0, changed = 0;
    int ends[2];
    pthread_t threads[RING + 16];
    int count = 0;
    for (int i = 0; i < RING; i++)
        MUST(pipe(pipes[i]));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    MUST(sem_init(&ping, 0, 0) || sem_init(&pong, 0, 0));
    for (long i = 0; i < RING; i++)
        threads[count++] = start(ring, (void *)i);
    for (long i = 0; i < 4; i++)
        threads[count++] = start(takes_turns, (void *)i);
    for (int i = 0; i < 2; i++)
        threads[count++] = start(compute, &sums[i]);
    threads[count++] = start(answers, NULL);
    threads[count++] = start(sleeps, &slept);
    threads[count++] = start(echoes, (void *)(long)ends[0]);
    threads[count++] = start(asks, (void *)(long)ends[1]);
    threads[count++] = start(files, &right);
    threads[count++] = start(memory, &touched);
    threads[count++] = start(begins_threads, &begun);
    threads[count++] = start(away, &changed);
    MUST(put(pipes[0][1], 0));
    for (int i = 0; i < TURNS; i++) {
        sem_post(&ping);
        while (sem_wait(&pong) != 0) {
        }
    }
    for (int i = 0; i < count; i++)
        join(threads[i]);
    check("soak_compute", sums[0] == sums[1], "%lx and %lx", sums[0], sums[1]);
    check("soak_turns", turn == 4 * TURNS, "%ld", turn);
    check("soak_sleeps", slept == 200 / part, "%ld", slept);
    check("soak_files", right == 300 * 4096, "%ld", right);
    check("soak_memory", touched == 200 / part * 256, "%ld", touched);
    check("soak_away", changed == 0, "%ld", changed);
    check("soak_threads", begun == 300 / part, "%ld", begun);
    return verdict();
}
