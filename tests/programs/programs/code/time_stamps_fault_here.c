/* A thread makes reading the time stamp counter a fault for itself, and then makes timers, threads and signals while all
 * processors are busy and threads wake each other: whoever serves it needs the time. */
#include "crowd.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>

#define ROUNDS 400

static _Thread_local sigjmp_buf before;
static atomic_int stops;

static void faults(int signal)
{
    (void)signal;
    siglongjmp(before, 1);
}

static void nothing(int signal) { (void)signal; }

static void *computes(void *unused)
{
    while (!atomic_load(&stops)) {
        for (volatile int i = 0; i < 100000; i++) {
        }
    }
    return unused;
}

static void *empty(void *unused) { return unused; }

static void *body(void *unused)
{
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    int is_set = 0;
    MUST(prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
    for (int i = 0; i < ROUNDS; i++) {
        timer_t timer;
        MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
        MUST(timer_delete(timer));
        if (i % 16 == 0)
            join(start(empty, NULL));
        pthread_kill(pthread_self(), SIGUSR1);
    }
    MUST(prctl(PR_GET_TSC, &is_set));
    if (sigsetjmp(before, 1) == 0) {
        __builtin_ia32_rdtsc();
        return "read";
    }
    return is_set == PR_TSC_SIGSEGV ? unused : "not set";
}

int main(void)
{
    struct sigaction fault = {.sa_handler = faults}, other = {.sa_handler = nothing};
    pthread_t busy[4];
    MUST(sigaction(SIGSEGV, &fault, NULL));
    MUST(sigaction(SIGUSR1, &other, NULL));
    begin_crowd();
    for (int i = 0; i < 4; i++)
        busy[i] = start(computes, NULL);
    for (int i = 0; i < 3; i++) {
        const char *wrong = join(start(body, NULL));
        check("time_stamps_fault_here", wrong == NULL, "%s", wrong);
    }
    atomic_store(&stops, 1);
    for (int i = 0; i < 4; i++)
        join(busy[i]);
    end_crowd();
    return verdict();
}
