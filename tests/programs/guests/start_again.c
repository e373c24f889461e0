/* Threads are asked for again and again: whether they come or not, nothing more stays each time. */
#include "case.h"
#include <dirent.h>

static void *body(void *unused) { return unused; }

static long kilobytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    MUST(!file || fscanf(file, "%ld", &pages) != 1);
    fclose(file);
    return pages * 4;
}

static int descriptors(void)
{
    DIR *list = opendir("/proc/self/fd");
    int count = 0;
    MUST(!list);
    while (readdir(list))
        count++;
    closedir(list);
    return count;
}

static void ask(void)
{
    pthread_t thread;
    int answer = pthread_create(&thread, NULL, body, NULL);
    MUST(answer != 0 && answer != EAGAIN);
    if (answer == 0)
        join(thread);
}

int main(void)
{
    for (int i = 0; i < 20; i++)
        ask();
    /* What starts at last stays once, in one of the halves; what stays each time, in both. */
    long more[2];
    int open = descriptors();
    for (int half = 0; half < 2; half++) {
        long before = kilobytes();
        for (int i = 0; i < 100; i++)
            ask();
        more[half] = kilobytes() - before;
    }
    check("memory_stays", more[0] < 2048 || more[1] < 2048, "%ld and %ld kB more", more[0],
          more[1]);
    check("descriptors_stay", descriptors() - open < 100, "%d, %d", open, descriptors());
    return verdict();
}
