/* Threads that have set one alternate signal stack, all the same: right as long as no two are on it at
 * once, as where the handlers end the process. They compute for longer than a time slice, and what they
 * have on it is theirs. First the stacks and then a handler that wants them, or the other way round. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { THREADS = 6, SIZE = 81920, ROUNDS = 8 };

static char stack[SIZE] __attribute__((aligned(16)));
static atomic_int set;

static void on_signal(int signal) { _exit(signal); }

static void want(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(sigaction(SIGABRT, &action, NULL));
}

static void *worker(void *arg)
{
    stack_t alternate = {.ss_sp = stack, .ss_size = SIZE};
    MUST(sigaltstack(&alternate, NULL));
    atomic_fetch_add(&set, 1);
    while (atomic_load(&set) <= THREADS)
        sched_yield();
    unsigned long sum = (unsigned long)arg;
    for (int round = 0; round < ROUNDS; round++) {
        for (volatile long i = 0; i < 4 * 1000 * 1000; i++)
            sum = sum * 6364136223846793005UL + 1442695040888963407UL;
        sched_yield();
    }
    return (void *)sum;
}

static int sums(int first)
{
    pthread_t threads[THREADS];
    atomic_store(&set, 0);
    if (first)
        want();
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(worker, (void *)i);
    while (atomic_load(&set) < THREADS)
        usleep(100);
    if (!first)
        want();
    atomic_store(&set, THREADS + 1);
    unsigned long step = 0, last = 0;
    int wrong = 0;
    for (long i = 0; i < THREADS; i++) {
        unsigned long sum = (unsigned long)join(threads[i]);
        /* A linear function of the start: all differences are the same. */
        wrong += i > 1 && sum - last != step;
        step = sum - last;
        last = sum;
    }
    return wrong;
}

int main(void)
{
    for (int first = 0; first < 2; first++) {
        pid_t child = fork();
        if (child == 0) {
            int wrong = sums(first);
            if (wrong)
                _exit(wrong);
            raise(SIGABRT);
        }
        int status = 0;
        waitpid(child, &status, 0);
        check(first ? "wanted_first" : "wanted_later", WIFEXITED(status) && WEXITSTATUS(status) == SIGABRT,
              "status %x", status);
    }
    return verdict();
}
