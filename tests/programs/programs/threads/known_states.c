/* Threads whose states are known: for debuggers and what else looks at a program from outside. With one virtual
 * processor, each thread that main gives way to runs until it waits. The argument says what comes then: `abort`, or
 * `stay`, which computes for ever. */
#include "case.h"
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, free_one = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int empty[2], locked;
static atomic_int all_are_made;
static volatile long turns;

#define APART __attribute__((noinline, noclone))

static APART long waits_in_mutex(void) { return pthread_mutex_lock(&held) + turns; }

static APART long waits_in_condition(void)
{
    MUST(pthread_mutex_lock(&free_one));
    return pthread_cond_wait(&never, &free_one) + turns;
}

static APART long waits_in_read(void)
{
    char byte;
    return read(empty[0], &byte, 1) + turns;
}

static APART long waits_in_sleep(void) { return sleep(100000) + turns; }

/* No such wait can be polled: it blocks the activation. */
static APART long waits_in_flock(void) { return flock(locked, LOCK_EX) + turns; }

static APART long computes(void)
{
    for (;;)
        turns++;
}

struct known {
    const char *name;
    long (*body)(void);
};

static void *begin(void *argument)
{
    struct known *known = argument;
    MUST(prctl(PR_SET_NAME, known->name));
    /* Main only yields from then on, so that it is ready when the others begin to wait. */
    while (!all_are_made)
        sched_yield();
    known->body();
    printf("FAIL %s: goes on\n", known->name);
    exit(1);
}

int main(int count, char **words)
{
    static struct known waiting[] = {
        {"in mutex", waits_in_mutex}, {"in condition", waits_in_condition}, {"in read", waits_in_read},
        {"in sleep", waits_in_sleep}, {"in flock", waits_in_flock},
    };
    static struct known computing = {"computing", computes};
    /* Where only ancestors may look at a process. */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    MUST(prctl(PR_SET_NAME, "first"));
    MUST(pthread_mutex_lock(&held));
    MUST(pipe(empty));
    int first = open("locked", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    locked = open("locked", O_RDWR | O_CLOEXEC);
    MUST(first < 0 || locked < 0);
    MUST(flock(first, LOCK_EX));
    for (size_t at = 0; at < sizeof waiting / sizeof *waiting; at++)
        start(begin, &waiting[at]);
    all_are_made = 1;
    for (int turn = 0; turn < 100; turn++)
        sched_yield();
    start(begin, &computing);
    /* It runs until its time slice ends. */
    sched_yield();
    start(begin, &computing);
    printf("ready\n");
    fflush(stdout);
    if (count > 1 && strcmp(words[1], "abort") == 0)
        abort();
    return (int)computes();
}
