/* A program asks for calls in `ask`, which this file calls four times: before there are threads, from the first thread
 * beside another one, from another thread, and from one with an I/O priority of its own. Each answer is printed. The answers of a native run are right. */
#include "case.h"
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>

/* No memory is there. */
#define NOWHERE ((void *)8)
/* No process has this id: it is beyond what a kernel gives. */
#define NO_ID 4194305

static const char *stage;
static pid_t program;

static void ask(void);

static void show(const char *what, long answer)
{
    if (syscall(SYS_getpid) != program) {
        printf("%s: %s made a process\n", stage, what);
        fflush(stdout);
        _exit(1);
    }
    if (answer == -1) {
        printf("%s: %s = -1, %s\n", stage, what, strerrorname_np(errno));
    } else {
        printf("%s: %s = %ld\n", stage, what, answer);
    }
    fflush(stdout);
}

/* Makes a call, and prints its own text and the answer. */
#define ASK(...) (errno = 0, show(#__VA_ARGS__, (long)(__VA_ARGS__)))
/* The same where the answer of a success differs from run to run. */
#define WORKS(...)                                                                                 \
    (errno = 0, ({                                                                                 \
         long works = (long)(__VA_ARGS__);                                                         \
         show(#__VA_ARGS__, works < 0 ? -1 : 0);                                                   \
     }))

static const struct timespec none __attribute__((unused)) = {0, 0}, soon __attribute__((unused)) = {0, 2000000},
                             negative __attribute__((unused)) = {-1, 0},
                             too_large __attribute__((unused)) = {0, 1000000000};
static const uint64_t no_signals __attribute__((unused));

static void set_mask(int fill)
{
    sigset_t set;
    (fill ? sigfillset : sigemptyset)(&set);
    MUST(pthread_sigmask(SIG_SETMASK, &set, NULL));
}

static void *asks(void *unused)
{
    (void)unused;
    set_mask(0);
    stage = "another thread";
    ask();
    return NULL;
}

/* What it sets is its own alone, and nothing else says that it has it. */
static void *asks_with_priority(void *unused)
{
    enum { BEST_EFFORT_6 = 2 << 13 | 6, WHO_PROCESS = 1 };
    (void)unused;
    set_mask(0);
    syscall(SYS_ioprio_set, WHO_PROCESS, 0, BEST_EFFORT_6);
    stage = "a bound thread";
    ask();
    return NULL;
}

/* A signal for the process goes to the thread that asks. */
static void *waits(void *barrier)
{
    set_mask(1);
    pthread_barrier_wait(barrier);
    return NULL;
}

int main(void)
{
    pthread_t thread, beside;
    pthread_barrier_t barrier;
    program = getpid();
    stage = "before threads";
    ask();
    MUST(pthread_barrier_init(&barrier, NULL, 2));
    MUST(pthread_create(&beside, NULL, waits, &barrier));
    stage = "beside another";
    ask();
    set_mask(1);
    MUST(pthread_create(&thread, NULL, asks, NULL));
    MUST(pthread_join(thread, NULL));
    MUST(pthread_create(&thread, NULL, asks_with_priority, NULL));
    MUST(pthread_join(thread, NULL));
    pthread_barrier_wait(&barrier);
    MUST(pthread_join(beside, NULL));
    return 0;
}
