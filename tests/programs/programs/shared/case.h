/* What the C and C++ programs share: verdict lines, set-up that must work, and a way to let other
 * threads come as far as they can. */
#ifndef CASE_H
#define CASE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int case_failures __attribute__((unused));

/* Prints `ok NAME`, or `FAIL NAME: ` and the evidence. */
__attribute__((format(printf, 3, 4), unused)) static void check(const char *name, int holds,
                                                               const char *evidence, ...)
{
    if (holds) {
        printf("ok %s\n", name);
    } else {
        va_list args;
        va_start(args, evidence);
        printf("FAIL %s: ", name);
        vprintf(evidence, args);
        printf("\n");
        va_end(args);
        case_failures++;
    }
    fflush(stdout);
}

/* The program's exit status. */
__attribute__((unused)) static int verdict(void) { return case_failures != 0; }

/* Set-up: a call that returns 0, or the program ends here and says where. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        int must_result = (call);                                                                  \
        if (must_result != 0) {                                                                    \
            printf("FAIL set-up: line %d: %s gave %d, errno %d\n", __LINE__, #call, must_result,   \
                   errno);                                                                         \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A wait that Linux cuts short without any handler when the process is stopped and continued (signal(7)):
 * made again, where somebody does that. */
#define UNSTOPPED(call)                                                                            \
    ({                                                                                             \
        long unstopped;                                                                            \
        do {                                                                                       \
            unstopped = (call);                                                                    \
        } while (unstopped == -1 && errno == EINTR && getenv("SOAK_SEED") != NULL);                \
        unstopped;                                                                                 \
    })

/* Gives other threads time to come to their blocking call. No verdict depends on it: it only
 * makes the interesting order of events the likely one. */
__attribute__((unused)) static void settle(void)
{
    struct timespec left = {0, 20 * 1000 * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* Nanoseconds of a clock. */
__attribute__((unused)) static long long now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* A point in time that many nanoseconds ahead. */
__attribute__((unused)) static struct timespec ahead(clockid_t clock, long long nanoseconds)
{
    long long then = now(clock) + nanoseconds;
    struct timespec time = {(time_t)(then / 1000000000), (long)(then % 1000000000)};
    return time;
}

/* Changes the calling thread's mask by this one: SIG_BLOCK or SIG_UNBLOCK. */
__attribute__((unused)) static void mask_signal(int how, int signal)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    MUST(pthread_sigmask(how, &set, NULL));
}

__attribute__((unused)) static pthread_t start(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, body, argument));
    return thread;
}

__attribute__((unused)) static void *join(pthread_t thread)
{
    void *result;
    MUST(pthread_join(thread, &result));
    return result;
}
#endif
