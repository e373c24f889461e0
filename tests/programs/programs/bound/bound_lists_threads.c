/* A thread with a nice value of its own makes threads. The process is told of each: in the number of its threads, in their
 * directory, and by the files of each one there. Of none that has ended. */
#include "case.h"
#include <dirent.h>
#include <semaphore.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define THREADS 3
#define ROUNDS 20

static sem_t go;

static void *body(void *id)
{
    *(long *)id = syscall(SYS_gettid);
    while (sem_wait(&go) != 0) {
    }
    return NULL;
}

static int number(void)
{
    char line[256];
    int found = -1;
    FILE *status = fopen("/proc/self/status", "re");
    MUST(status == NULL);
    while (fgets(line, sizeof line, status) != NULL)
        sscanf(line, "Threads: %d", &found);
    fclose(status);
    return found;
}

static int listed(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    MUST(tasks == NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static int has_files(long id)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", id);
    return access(path, R_OK) == 0;
}

int main(void)
{
    int less = 0, more = 0, without = 0;
    pthread_t first, threads[THREADS];
    volatile long ids[THREADS] = {0}, id = 0;
    MUST(sem_init(&go, 0, 0));
    MUST(pthread_create(&first, NULL, body, (void *)&id));
    sem_post(&go);
    MUST(pthread_join(first, NULL));
    MUST(setpriority(PRIO_PROCESS, 0, 1));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < THREADS; i++) {
            ids[i] = 0;
            MUST(pthread_create(&threads[i], NULL, body, (void *)&ids[i]));
            /* At once, as the kernel does. */
            less += number() < i + 2 || listed() < i + 2;
        }
        for (int i = 0; i < THREADS; i++) {
            while (ids[i] == 0)
                usleep(100);
            without += !has_files(ids[i]);
        }
        for (int i = 0; i < THREADS; i++)
            sem_post(&go);
        for (int i = 0; i < THREADS; i++)
            MUST(pthread_join(threads[i], NULL));
        /* Who is joined may still be about to end in the kernel. */
        int tries = 0;
        while ((number() != 1 || listed() != 1) && tries < 10000) {
            usleep(1000);
            tries++;
        }
        more += tries == 10000;
    }
    check("all are told", less == 0, "%d times one was missing", less);
    check("with files of their own", without == 0, "%d without", without);
    check("none that has ended", more == 0, "%d times", more);
    return verdict();
}
