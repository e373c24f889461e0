/* A process in which one thread waits for a descriptor, again and again, and nobody else for any: it goes to sleep once for each event,
 * and nobody is woken to wait in the thread's place while that runs. Counted by the kernel (getrusage(2)). */
#include "case.h"
#include <sys/resource.h>
#include <sys/wait.h>

enum { ROUNDS = 20000 };

static void *wait_for_ever(void *unused)
{
    for (;;) {
        pause();
    }
    return unused;
}

/* Answers each byte. */
static void answer(int in, int out)
{
    char byte;
    while (read(in, &byte, 1) == 1 && write(out, &byte, 1) == 1) {
    }
    _exit(0);
}

static long sleeps(void)
{
    struct rusage used;
    MUST(getrusage(RUSAGE_SELF, &used));
    return used.ru_nvcsw;
}

int main(void)
{
    int to[2], from[2];
    MUST(pipe(to) || pipe(from));
    pid_t child = fork();
    if (child == 0) {
        close(to[1]);
        close(from[0]);
        answer(to[0], from[1]);
    }
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, wait_for_ever, NULL));
    long before = sleeps();
    for (int round = 0; round < ROUNDS; round++) {
        char byte = 0;
        MUST(write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1);
    }
    long slept = sleeps() - before;
    check("it sleeps once for each event", slept <= ROUNDS * 3 / 2, "%ld times for %d", slept, ROUNDS);
    close(to[1]);
    int status;
    MUST(waitpid(child, &status, 0) != child);
    return verdict();
}
