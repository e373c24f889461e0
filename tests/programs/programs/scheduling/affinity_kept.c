/* Nobody changes which processors the program may use: it has the same at the end, however often its threads have waited for other
 * processes, beside one that computes now and then and takes the processor from them. */
#include "case.h"
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { THREADS = 4, ROUNDS = 20000 };

static int left = THREADS;

/* Answers each byte. */
static void answer(int socket)
{
    char byte;
    while (read(socket, &byte, 1) == 1 && write(socket, &byte, 1) == 1) {
    }
    _exit(0);
}

static void *ask(void *socket)
{
    struct pollfd one = {.fd = (int)(long)socket, .events = POLLIN};
    for (int round = 0; round < ROUNDS; round++) {
        char byte = 0;
        MUST(write(one.fd, &byte, 1) != 1 || UNSTOPPED(poll(&one, 1, -1)) != 1 || read(one.fd, &byte, 1) != 1);
    }
    __atomic_fetch_sub(&left, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *compute(void *unused)
{
    while (__atomic_load_n(&left, __ATOMIC_ACQUIRE) != 0) {
        for (volatile int busy = 0; busy < 2000000; busy++) {
        }
        usleep(100);
    }
    return unused;
}

int main(void)
{
    cpu_set_t before, after;
    MUST(sched_getaffinity(0, sizeof before, &before));
    int sockets[THREADS];
    pid_t children[THREADS];
    for (int index = 0; index < THREADS; index++) {
        int pair[2];
        MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair));
        children[index] = fork();
        if (children[index] == 0) {
            for (int earlier = 0; earlier < index; earlier++) {
                close(sockets[earlier]);
            }
            close(pair[0]);
            answer(pair[1]);
        }
        close(pair[1]);
        sockets[index] = pair[0];
    }
    pthread_t threads[THREADS + 1];
    for (int index = 0; index < THREADS; index++) {
        MUST(pthread_create(&threads[index], NULL, ask, (void *)(long)sockets[index]));
    }
    MUST(pthread_create(&threads[THREADS], NULL, compute, NULL));
    for (int index = 0; index <= THREADS; index++) {
        MUST(pthread_join(threads[index], NULL));
    }
    for (int index = 0; index < THREADS; index++) {
        close(sockets[index]);
        MUST(waitpid(children[index], NULL, 0) != children[index]);
    }
    /* What the machine grants is asked for at the end of a slice. */
    for (volatile int busy = 0; busy < 300000000; busy++) {
    }
    MUST(sched_getaffinity(0, sizeof after, &after));
    check("the program may use what it might before", CPU_EQUAL(&before, &after), "%d processors, not %d",
          CPU_COUNT(&after), CPU_COUNT(&before));
    return verdict();
}
