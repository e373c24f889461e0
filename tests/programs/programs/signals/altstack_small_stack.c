/* Threads of a program that takes signals on alternate stacks compute on stacks of their own
 * without room for a signal frame: nothing may be written below the stack pointer, and each
 * thread keeps its alternate stack wherever it runs. */
#include "case.h"
#include "stack_pointer.h"
#include <signal.h>

enum { THREADS = 6, ROUNDS = 12, BELOW = 16384, ALTERNATE = 65536 };

static void on_signal(int signal) { (void)signal; }

static void *worker(void *unused)
{
    (void)unused;
    long written = 0;
    stack_t alternate = {.ss_sp = malloc(ALTERNATE), .ss_size = ALTERNATE}, now;
    MUST(sigaltstack(&alternate, NULL));
    char *area = malloc(BELOW + 64);
    for (int round = 0; round < ROUNDS; round++) {
        memset(area, 0x5a, BELOW);
        compute_at(area + BELOW, 10 * 1000 * 1000);
        for (int i = 0; i < BELOW; i++)
            written += area[i] != 0x5a;
        MUST(sigaltstack(NULL, &now));
        written += now.ss_sp != alternate.ss_sp;
        usleep(100);
    }
    return (void *)written;
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[THREADS];
    long written = 0;
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(worker, NULL);
    for (int i = 0; i < 100; i++) {
        kill(getpid(), SIGUSR1);
        usleep(1000);
    }
    for (int i = 0; i < THREADS; i++)
        written += (long)join(threads[i]);
    check("small_stacks_are_untouched", written == 0, "%ld bytes or stacks differ", written);
    return verdict();
}
