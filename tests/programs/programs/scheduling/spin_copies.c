/* Two threads that spin at a barrier on two processors, for MS milliseconds of processor time at least; for ever with 0. Makes
 * the file FILE when it has come to its rounds. Has so many DESCRIPTORS open, which are looked at before the first thread. */
#include "case.h"
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>

#define PHASE 20000
/* Then it has come to its rounds. */
#define BEGUN 100
/* It looks at the clock each so many rounds. */
#define OFTEN 64
static atomic_long arrived, generation;
static atomic_int over;
static long ms, rounds[2];
static const char *file;

static void *body(void *number)
{
    long *mine = &rounds[(long)number];
    while (!over) {
        for (volatile int work = 0; work < PHASE; work++) {
        }
        long seen = atomic_load(&generation);
        if (atomic_fetch_add(&arrived, 1) == 1) {
            atomic_store(&arrived, 0);
            if (ms != 0 && seen > BEGUN && seen % OFTEN == 0 && now(CLOCK_PROCESS_CPUTIME_ID) >= ms * 1000000LL)
                over = 1;
            atomic_store(&generation, seen + 1);
        } else {
            while (atomic_load(&generation) == seen) {
            }
        }
        if ((*mine)++ == BEGUN && number)
            close(open(file, O_CREAT | O_WRONLY, 0600));
    }
    return NULL;
}

/* The first two processors of those allowed, from the beginning of the program on. */
static void pin(char **arguments)
{
    cpu_set_t allowed, two;
    MUST(sched_getaffinity(0, sizeof allowed, &allowed));
    if (CPU_COUNT(&allowed) == 2)
        return;
    CPU_ZERO(&two);
    for (int cpu = 0; CPU_COUNT(&two) < 2; cpu++)
        if (CPU_ISSET(cpu, &allowed))
            CPU_SET(cpu, &two);
    MUST(sched_setaffinity(0, sizeof two, &two));
    MUST(execv("/proc/self/exe", arguments));
}

static void open_many(long many)
{
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    while (many-- > 0)
        MUST(dup(1) < 0);
}

int main(int count, char **arguments)
{
    pin(arguments);
    open_many(count > 3 ? atol(arguments[3]) : 0);
    ms = count > 1 ? atol(arguments[1]) : 100;
    file = count > 2 ? arguments[2] : "/dev/null";
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        threads[i] = start(body, (void *)i);
    for (int i = 0; i < 2; i++)
        join(threads[i]);
    check("spin_copies", rounds[0] == generation && rounds[1] == generation, "%ld and %ld of %ld rounds",
          rounds[0], rounds[1], (long)generation);
    return verdict();
}
