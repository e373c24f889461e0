/* Threads compute; a process that is bound to one processor computes there too. A thread that is there
 * comes to another processor, whether the other process was there first or comes to it, if one is left
 * over. Two threads are never both on one processor.
 *
 * Time is not measured. What counts are looks in which the other processors were idle, or both
 * threads had run; a machine that never grants any says so instead of a verdict. */
#include "case.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { THREADS = 2, ENOUGH = 40, LOOKS_APART = 20, MOST_LOOKS = 100, STEPS = 20 };

static cpu_set_t allowed;
static struct {
    atomic_int where, rounds;
    atomic_ulong seen[CPU_SETSIZE / 64];
} threads[THREADS];

static void *compute(void *argument)
{
    int i = (int)(long)argument;
    for (;;) {
        for (volatile int busy = 0; busy < 20000; busy++) {
        }
        int here = sched_getcpu();
        threads[i].where = here;
        atomic_fetch_or(&threads[i].seen[here / 64], 1ul << here % 64);
        threads[i].rounds++;
    }
    return argument;
}

/* A process that computes on this processor until this one ends. */
static void hog(int processor)
{
    int ready[2];
    char byte = 0;
    MUST(pipe(ready));
    pid_t parent = getpid(), child = fork();
    MUST(child < 0);
    if (child == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(processor, &one);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent || sched_setaffinity(0, sizeof one, &one) != 0
            || write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (volatile unsigned long busy = 0;; busy++) {
        }
    }
    close(ready[1]);
    MUST(read(ready[0], &byte, 1) != 1);
    close(ready[0]);
}

/* The largest idle time of an allowed processor other than this one, in hundredths of a second, since
 * the last call. */
static long idle_elsewhere(int processor)
{
    static long before[CPU_SETSIZE];
    FILE *file = fopen("/proc/stat", "r");
    MUST(file == NULL);
    char line[512];
    long most = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        int one;
        long idle, waits;
        if (sscanf(line, "cpu%d %*d %*d %*d %ld %ld", &one, &idle, &waits) != 3 || one < 0
            || one >= CPU_SETSIZE)
            continue;
        long now = idle + waits, since = now - before[one];
        before[one] = now;
        if (one != processor && CPU_ISSET(one, &allowed) && since > most)
            most = since;
    }
    fclose(file);
    return most;
}

/* Hundredths of a second. */
static long look(void)
{
    long long begun = now(CLOCK_MONOTONIC);
    for (int step = 0; step < STEPS; step++)
        usleep(10000);
    return (long)((now(CLOCK_MONOTONIC) - begun) / 10000000);
}

static int is_there(int processor, int nr_threads)
{
    return threads[0].where == processor || (nr_threads > 1 && threads[1].where == processor);
}

static void nobody_stays(int processor, int nr_threads)
{
    int looks = 0, idle = 0;
    idle_elsewhere(processor);
    while (is_there(processor, nr_threads) && idle < ENOUGH && looks++ < MOST_LOOKS) {
        long time = look();
        idle += idle_elsewhere(processor) * 10 >= time * 9;
    }
    if (is_there(processor, nr_threads) && idle < ENOUGH)
        printf("skipped: no other processor was idle\n");
    else
        check("beside_hog_moves", !is_there(processor, nr_threads), "on %d after %d looks",
              processor, idle);
}

/* The only processor on which a thread was seen, or -1, and forgets it. */
static int only(int i)
{
    int found = -1, count = 0;
    for (int word = 0; word < CPU_SETSIZE / 64; word++) {
        unsigned long bits = atomic_exchange(&threads[i].seen[word], 0);
        count += __builtin_popcountl(bits);
        if (bits != 0)
            found = 64 * word + __builtin_ctzl(bits);
    }
    return count == 1 ? found : -1;
}

static void two_threads_stay_apart(void)
{
    int looks = 0, both = 0, together = 0;
    while (both < LOOKS_APART && looks++ < MOST_LOOKS) {
        int before[2] = {threads[0].rounds, threads[1].rounds};
        only(0);
        only(1);
        look();
        if (threads[0].rounds - before[0] < STEPS || threads[1].rounds - before[1] < STEPS)
            continue;
        int first = only(0), second = only(1);
        both++;
        together += first >= 0 && first == second;
    }
    if (both < LOOKS_APART)
        printf("skipped: the threads hardly run\n");
    else
        check("beside_hog_apart", together == 0, "%d looks of %d", together, both);
}

int main(int count, char **arguments)
{
    MUST(count != 3);
    int nr_threads = atoi(arguments[1]), first = strcmp(arguments[2], "first") == 0;
    MUST(nr_threads < 1 || nr_threads > THREADS);
    /* The parent's, which it has passed on: a program is told of as many as it has virtual processors. */
    MUST(sched_getaffinity(getppid(), sizeof allowed, &allowed));
    int processor = sched_getcpu();
    if (first)
        hog(processor);
    for (long i = 0; i < nr_threads; i++)
        MUST(pthread_detach(start(compute, (void *)i)));
    for (int i = 0; i < nr_threads; i++)
        while (threads[i].rounds == 0)
            usleep(1000);
    if (!first) {
        processor = threads[0].where;
        hog(processor);
    }
    if (nr_threads < CPU_COUNT(&allowed))
        nobody_stays(processor, nr_threads);
    if (nr_threads == 2)
        two_threads_stay_apart();
    fflush(stdout);
    _exit(verdict());
}
