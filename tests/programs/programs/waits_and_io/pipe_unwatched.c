/* A pipe for which a thread was parked, and on which it then blocks by itself, because both ends
 * compute in between: the runtime has it in its epoll instance first, and not any more afterwards. */
#include "case.h"
#include <dirent.h>
#include <stdatomic.h>

enum { MOST_ROUNDS = 1000 };

static int ends[2];
static atomic_int computes, reading;

static void *reads(void *unused)
{
    char byte;
    for (;;) {
        /* Several time slices. */
        long long until = now(CLOCK_THREAD_CPUTIME_ID) + 15000000;
        while (computes && now(CLOCK_THREAD_CPUTIME_ID) < until) {
        }
        reading = 1;
        if (read(ends[0], &byte, 1) != 1 || byte == 'e')
            return unused;
    }
}

/* Whether some epoll instance of the process watches the descriptor. */
static int is_watched(int descriptor)
{
    DIR *all = opendir("/proc/self/fdinfo");
    MUST(all == NULL);
    int found = 0;
    for (struct dirent *one; (one = readdir(all)) != NULL;) {
        char path[300], line[256];
        snprintf(path, sizeof path, "/proc/self/fdinfo/%s", one->d_name);
        FILE *file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof line, file) != NULL) {
            int watched;
            found |= sscanf(line, "tfd: %d", &watched) == 1 && watched == descriptor;
        }
        if (file != NULL)
            fclose(file);
    }
    closedir(all);
    return found;
}

/* Lets the thread read once more. */
static void next(char byte)
{
    reading = 0;
    MUST(write(ends[1], &byte, 1) != 1);
}

int main(void)
{
    MUST(pipe(ends));
    pthread_t thread = start(reads, NULL);
    int watched = 0, rounds = 0;
    while (!(watched = is_watched(ends[0])) && rounds++ < MOST_ROUNDS) {
        /* Many scheduling points: then a thread parks. */
        while (!reading)
            sched_yield();
        for (int yields = 0; yields < 1000; yields++)
            sched_yield();
        next('n');
    }
    check("pipe_watched", watched, "not after %d rounds", rounds);
    computes = 1;
    for (rounds = 0; watched && rounds < MOST_ROUNDS; rounds++) {
        next('n');
        while (!reading) {
        }
        long long until = now(CLOCK_THREAD_CPUTIME_ID) + 15000000;
        while (now(CLOCK_THREAD_CPUTIME_ID) < until) {
        }
        watched = is_watched(ends[0]);
    }
    check("pipe_unwatched", !watched, "still after %d rounds", rounds);
    next('e');
    join(thread);
    return verdict();
}
