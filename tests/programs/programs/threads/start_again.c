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
    /* What starts at last stays once, and perhaps what the kernel has not taken back before: in two of the
     * parts at most. What stays each time stays in all. */
    long least = 1 << 30;
    int open = descriptors();
    for (int part = 0; part < 4; part++) {
        long before = kilobytes();
        for (int i = 0; i < 50; i++)
            ask();
        long more = kilobytes() - before;
        least = more < least ? more : least;
    }
    check("memory_stays", least < 1024, "%ld kB more in each part", least);
    check("descriptors_stay", descriptors() - open < 100, "%d, %d", open, descriptors());
    return verdict();
}
