/* What the programs say: a line for what does not hold, and its number at the end. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <upcall.h>

#define CHECK(what)                                                      \
    do {                                                                 \
        if (!(what)) {                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);   \
            abort();                                                     \
        }                                                                \
    } while (0)

/* The function's answer is this error number. */
#define ANSWERS(number, call)                                                                              \
    do {                                                                                                   \
        int answer_ = (call);                                                                              \
        if (answer_ != (number)) {                                                                         \
            fprintf(stderr, "%s:%d: %s: %d (%s)\n", __FILE__, __LINE__, #call, answer_, strerror(answer_)); \
            abort();                                                                                       \
        }                                                                                                  \
    } while (0)

#define OK(call) ANSWERS(0, call)

/* Starts the runtime as the test wants it: MODE is the number of virtual processors and the slice in
 * microseconds, or "none". */
static inline void start_as_told(void)
{
    const char *mode = getenv("MODE");
    struct upcall_options options = UPCALL_OPTIONS_INITIALIZER;
    unsigned vps = 0, slice_us = 0;
    if (mode && sscanf(mode, "%u,%u", &vps, &slice_us) == 2) {
        options.vps_min = options.vps_max = vps;
        options.time_slice_ns = slice_us * 1000ull;
        OK(upcall_start(&options));
        CHECK(upcall_served_by() == UPCALL_OWN);
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
