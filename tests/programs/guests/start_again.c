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
    long before = kilobytes();
    int open = descriptors();
    for (int i = 0; i < 200; i++)
        ask();
    check("memory_stays", kilobytes() - before < 4096, "%ld kB more", kilobytes() - before);
    check("descriptors_stay", descriptors() - open < 100, "%d, %d", open, descriptors());
    return verdict();
}
