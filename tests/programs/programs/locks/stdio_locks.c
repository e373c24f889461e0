/* stdio's own locks: lines of many threads stay whole, and flockfile held over a sleep holds. */
#include "case.h"
#include <stdatomic.h>

#define THREADS 10
static FILE *file;
static atomic_int holding, early;

static void *writer(void *number)
{
    for (int i = 0; i < 300; i++)
        fprintf(file, "%d:%03d:%s\n", (int)(long)number, i, "abcdefghijklmnopqrstuvwxyz");
    return NULL;
}

static void *holder(void *unused)
{
    flockfile(file);
    atomic_store(&holding, 1);
    usleep(30000);
    atomic_store(&holding, 0);
    funlockfile(file);
    return unused;
}

static void *follower(void *unused)
{
    fputs("", file);
    flockfile(file);
    if (atomic_load(&holding))
        atomic_fetch_add(&early, 1);
    funlockfile(file);
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    file = tmpfile();
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(writer, (void *)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    rewind(file);
    char line[128];
    int next[THREADS] = {0}, broken = 0, lines = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        int number, turn;
        char letters[64];
        lines++;
        if (sscanf(line, "%d:%d:%63s", &number, &turn, letters) != 3 || number < 0 ||
            number >= THREADS || turn != next[number]++ || strlen(letters) != 26)
            broken++;
    }
    check("stdio_lines", broken == 0 && lines == THREADS * 300, "%d broken of %d", broken, lines);

    threads[0] = start(holder, NULL);
    while (!atomic_load(&holding))
        sched_yield();
    for (int i = 1; i < THREADS; i++)
        threads[i] = start(follower, NULL);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("stdio_flockfile", early == 0, "%d threads passed a held lock", early);
    return verdict();
}
