/* What the programs say: a line for what does not hold, and its number at the end. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <upcall.h>

#define CHECK(what)                                                      \
    do {                                                                 \
        if (!(what)) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);   \
            abort();                                                     \
        }                                                                \
    } while (0)

/* No error has this number. */
enum { UNTOUCHED = 4242 };

/* The function's answer is this error number; one of ours leaves errno alone. */
#define ANSWERS(number, call)                                                                              \
    do {                                                                                                   \
        int errno_ = errno;                                                                                \
        errno = UNTOUCHED;                                                                                 \
        int answer_ = (call);                                                                              \
        if (strncmp(#call, "upcall_", 7) == 0 && errno != UNTOUCHED) {                                     \
            fprintf(stderr, "%s:%d: %s: errno is %d\n", __FILE__, __LINE__, #call, errno);                 \
            abort();                                                                                       \
        }                                                                                                  \
        if (answer_ != (number)) {                                                                         \
            fprintf(stderr, "%s:%d: %s: %d (%s)\n", __FILE__, __LINE__, #call, answer_, strerror(answer_)); \
            abort();                                                                                       \
        }                                                                                                  \
        errno = errno_;                                                                                    \
    } while (0)

#define OK(call) ANSWERS(0, call)

static inline void *waits_for_ever(void *argument)
{
    for (;;)
        pause();
    return argument;
}

/* Starts the runtime as MODE says: so many virtual processors, and a time slice in microseconds; "native": there is another
 * thread, so that there can be none; "preloaded": `upcall run` has; else by the first thread. */
static inline void start_as_told(void)
{
    const char *mode = getenv("MODE");
    /* What hangs ends by this. */
    alarm(100);
    struct upcall_options options = UPCALL_OPTIONS_INITIALIZER;
    unsigned vps = 0, slice_us = 0;
    if (!mode)
        return;
    if (sscanf(mode, "%u,%u", &vps, &slice_us) == 2) {
        options.vps_min = options.vps_max = vps;
        options.time_slice_ns = slice_us * 1000ull;
        CHECK(upcall_served_by() == UPCALL_NATIVE);
        OK(upcall_start(&options));
        CHECK(upcall_served_by() == UPCALL_OWN);
    } else if (strcmp(mode, "native") == 0) {
        pthread_t other;
        OK(pthread_create(&other, NULL, waits_for_ever, NULL));
        ANSWERS(EBUSY, upcall_start(NULL));
        CHECK(upcall_served_by() == UPCALL_NATIVE);
    } else if (strcmp(mode, "preloaded") == 0) {
        OK(upcall_start(&options));
        CHECK(upcall_served_by() == UPCALL_PRELOADED);
    }
}

static inline struct timespec in_ns(uint64_t ns)
{
    struct timespec deadline;
    OK(upcall_deadline(&deadline, ns));
    return deadline;
}

#define MS 1000000ull

#endif
