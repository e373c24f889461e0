/* What a timeline is made of: threads that compute, wait for each other, for descriptors and in the kernel.
 *
 *   timeline work     some of everything, then ends
 *   timeline many N   N threads block in the kernel at once
 *   timeline stay     says "ready" when it has had a thread, and works until it is killed
 *   timeline kill     works, and kills itself
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile long inside;
static int there[2], back[2];
static int rounds = 2000;
/* For how long a thread computes. */
static long long computing_ns = 1000000000;

static void must(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        _exit(1);
    }
}

static void *fights(void *name)
{
    pthread_setname_np(pthread_self(), name);
    for (int i = 0; i < rounds; i++) {
        pthread_mutex_lock(&mutex);
        inside++;
        for (volatile int k = 0; k < 200; k++) {}
        if (i % 50 == 0)
            usleep(10);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void *echoes(void *unused)
{
    char byte;
    pthread_setname_np(pthread_self(), "echo");
    while (read(there[0], &byte, 1) == 1)
        must(write(back[1], &byte, 1) == 1, "write");
    return unused;
}

static void *calls(void *unused)
{
    char byte;
    pthread_setname_np(pthread_self(), "caller");
    for (int i = 0; i < rounds; i++) {
        must(write(there[1], "x", 1) == 1, "write");
        must(read(back[0], &byte, 1) == 1, "read");
    }
    close(there[1]);
    return unused;
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static void *computes(void *unused)
{
    pthread_setname_np(pthread_self(), "computer");
    long long end = now() + computing_ns;
    do {
        for (volatile int k = 0; k < 10000; k++) {}
    } while (now() < end);
    return unused;
}

static void *sleeps(void *unused)
{
    pthread_setname_np(pthread_self(), "sleeper");
    for (int i = 0; i < 20; i++)
        usleep(2000);
    return unused;
}

static void *locks(void *unused)
{
    pthread_setname_np(pthread_self(), "locker");
    int file = open("timeline.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(file >= 0, "open");
    must(flock(file, LOCK_EX) == 0, "flock");
    usleep(20000);
    close(file);
    return unused;
}

static void work(void)
{
    pthread_t threads[10];
    int count = 0;
    void *(*all[])(void *) = {fights, fights, echoes, calls, computes, sleeps, locks, locks};
    const char *names[] = {"fighter", "fighter", "", "", "", "", "", ""};
    must(pipe(there) == 0 && pipe(back) == 0, "pipe");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        must(pthread_create(&threads[count++], NULL, all[i], (void *)names[i]) == 0, "create");
    while (count > 0)
        pthread_join(threads[--count], NULL);
    close(there[0]);
    close(back[0]);
    close(back[1]);
}

static void *waits_in_kernel(void *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    must(file >= 0, "open");
    must(flock(file, LOCK_SH) == 0, "flock");
    close(file);
    return NULL;
}

static void many(int count)
{
    pthread_t *threads = calloc(count, sizeof *threads);
    int file = open("timeline.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(file >= 0 && flock(file, LOCK_EX) == 0, "flock");
    for (int i = 0; i < count; i++)
        must(pthread_create(&threads[i], NULL, waits_in_kernel, "timeline.lock") == 0, "create");
    sleep(1);
    must(flock(file, LOCK_UN) == 0, "unlock");
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "work";
    if (strcmp(what, "many") == 0) {
        many(argc > 2 ? atoi(argv[2]) : 100);
    } else if (strcmp(what, "stay") == 0) {
        pthread_t first;
        /* Whoever looks for a second sees some of everything. */
        computing_ns = 100000000;
        must(pthread_create(&first, NULL, sleeps, NULL) == 0, "create");
        pthread_join(first, NULL);
        puts("ready");
        fflush(stdout);
        for (;;)
            work();
    } else {
        work();
        if (strcmp(what, "kill") == 0)
            kill(getpid(), SIGKILL);
    }
    puts("done");
    return 0;
}
