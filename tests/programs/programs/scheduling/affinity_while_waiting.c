/* Another process changes the affinity of a kernel thread while the program waits for it, and that one may run anywhere: the program
 * sees its new set, and stays there. Two processes answer each other, so that a runtime that lets the kernel choose now and
 * then where a wait ends does so. */
#include "tasks.h"
#include <sys/wait.h>

enum { ROUNDS = 20000 };

static void *wait_for_ever(void *unused)
{
    for (;;) {
        pause();
    }
    return unused;
}

/* Answers each byte; one byte is "done", when the masks were changed. */
static void answer(int in, int out, pid_t process, int target)
{
    char byte;
    int done = 0, failures;
    for (int round = 0; read(in, &byte, 1) == 1; round++) {
        if (!done && round >= 50) {
            done = bind_tasks(process, target, round == ROUNDS, &failures) != 0;
        }
        byte = done;
        if (write(out, &byte, 1) != 1) {
            break;
        }
    }
    _exit(0);
}

int main(void)
{
    cpu_set_t set;
    MUST(sched_getaffinity(0, sizeof set, &set));
    int target = last_processor(&set);
    int to[2], from[2];
    MUST(pipe(to) || pipe(from));
    pid_t self = getpid(), child = fork();
    if (child == 0) {
        close(to[1]);
        close(from[0]);
        answer(to[0], from[1], self, target);
    }
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, wait_for_ever, NULL));
    char byte = 0;
    int rounds = 0;
    do {
        MUST(write(to[1], "", 1) != 1 || read(from[0], &byte, 1) != 1);
    } while (!byte && rounds++ < ROUNDS);
    check("a mask was changed", byte, "not in %d rounds", rounds);
    int follows = 0;
    /* Bounded: some seconds of processor time. */
    for (int look = 0; look < 8000 && !follows; look++) {
        for (volatile int busy = 0; busy < 300000; busy++) {
        }
        MUST(sched_getaffinity(0, sizeof set, &set));
        follows = CPU_COUNT(&set) == 1 && CPU_ISSET(target, &set);
    }
    check("the program has the processor that it was given", follows, "it has %d", CPU_COUNT(&set));
    close(to[1]);
    int status;
    MUST(waitpid(child, &status, 0) != child);
    return verdict();
}
