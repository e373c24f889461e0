/* THREADS threads that compute and never wait for each other, for ever. Makes the file FILE when each has begun. */
#include "case.h"
#include <fcntl.h>
#include <stdatomic.h>

#define PHASE 20000
static atomic_long begun;
static long threads;
static const char *file;

static void *body(void *unused)
{
    (void)unused;
    for (volatile int work = 0; work < PHASE; work++) {
    }
    if (atomic_fetch_add(&begun, 1) + 1 == threads)
        close(open(file, O_CREAT | O_WRONLY, 0600));
    for (volatile long work = 0;; work++) {
    }
    return NULL;
}

int main(int count, char **arguments)
{
    threads = count > 1 ? atol(arguments[1]) : 2;
    file = count > 2 ? arguments[2] : "/dev/null";
    for (long i = 1; i < threads; i++)
        start(body, NULL);
    body(NULL);
}
