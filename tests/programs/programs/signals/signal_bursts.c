/* A signal that is ignored may come as often as it likes: on a small alternate stack as well, where the
 * runtime may take it. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { SENDERS = 4, SIGNALS = 60000, STACK = 16 << 10 };

static atomic_int over;
static int ends[2];

static void handler(int signal) { (void)signal; }

static void own_stack(void)
{
    char *memory = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t stack = {.ss_sp = memory, .ss_size = STACK};
    MUST(memory == MAP_FAILED);
    MUST(sigaltstack(&stack, NULL));
}

static void *computes(void *unused)
{
    own_stack();
    while (!atomic_load(&over)) {
    }
    return unused;
}

static void *reads(void *unused)
{
    char byte;
    own_stack();
    while (read(ends[0], &byte, 1) != 1) {
    }
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    pthread_t all[3];
    pid_t parent = getpid(), senders[SENDERS];
    int failed = 0, status;
    MUST(pipe(ends));
    MUST(sigaction(SIGUSR1, &action, NULL));
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = fork();
        if (senders[i] == 0) {
            /* When the threads are there. */
            char byte;
            MUST(read(ends[0], &byte, 1) != 1);
            for (int sent = 0; sent < SIGNALS; sent++)
                kill(parent, SIGURG);
            _exit(0);
        }
    }
    for (int i = 0; i < 3; i++)
        all[i] = start(i == 0 ? reads : computes, NULL);
    settle();
    MUST(write(ends[1], "12345", SENDERS + 1) != SENDERS + 1);
    for (int i = 0; i < SENDERS; i++) {
        while (waitpid(senders[i], &status, 0) != senders[i]) {
        }
        failed |= status;
    }
    atomic_store(&over, 1);
    check("bursts", failed == 0, "a sender ended with %#x", failed);
    for (int i = 0; i < 3; i++)
        join(all[i]);
    return verdict();
}
