/* Another process of the same user writes into the file of the turns that it has the processors, all the time,
 * and cuts the file short in the end. Neither stops two threads that compute. The file is one of this program's own: the
 * directories where it would be are fresh ones, in a mount namespace. */
#include "case.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SECONDS 4
#define SLOT 5
#define SLOT_SIZE 128

static atomic_int stop;
static atomic_long ran[2];
static char path[300];

/* Counts the milliseconds in which it has run. */
static void *spin(void *count)
{
    long long last = 0;
    while (!atomic_load(&stop)) {
        long long time = now(CLOCK_MONOTONIC) / 1000000;
        if (time != last)
            atomic_fetch_add((atomic_long *)count, 1);
        last = time;
    }
    return NULL;
}

static int is_private(void)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return 0;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
        && mount("none", "/run", "tmpfs", 0, NULL) == 0
        && mount("none", "/dev/shm", "tmpfs", 0, NULL) == 0;
}

/* The file of the turns, if the program takes them. */
static int find(void)
{
    DIR *directory = opendir("/dev/shm");
    struct dirent *entry;
    while (directory && (entry = readdir(directory)))
        if (strncmp(entry->d_name, "upcall-turns-", 13) == 0)
            snprintf(path, sizeof path, "/dev/shm/%s", entry->d_name);
    closedir(directory);
    return path[0] != 0;
}

/* In a child: is on and heard of, on all processors, for ever. */
static void hold(void)
{
    int file = open(path, O_RDWR);
    char *memory = mmap(NULL, SLOT_SIZE * 65, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        _exit(1);
    char *slot = memory + SLOT_SIZE * (1 + SLOT);
    memset(slot + 48, 0xff, 32);
    *(_Atomic uint32_t *)slot = (uint32_t)getpid();
    *(_Atomic uint32_t *)(memory + 16) = 64;
    for (;;) {
        uint64_t time = (uint64_t)now(CLOCK_MONOTONIC);
        *(_Atomic uint64_t *)(slot + 8) = time;
        *(_Atomic uint64_t *)(slot + 32) = time;
        usleep(1000);
    }
}

int main(void)
{
    if (!is_private()) {
        fprintf(stderr, "skipped: no mount namespace of its own\n");
        return 0;
    }
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        threads[i] = start(spin, &ran[i]);
    pid_t holder = -1;
    if (find()) {
        holder = fork();
        if (holder == 0)
            hold();
    }
    long begin = ran[0] + ran[1];
    struct timespec until = ahead(CLOCK_MONOTONIC, SECONDS * 1000000000LL);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    long after = ran[0] + ran[1];
    /* Of 8000 on two idle processors; where it waits a second for each turn there are 160. */
    check("goes_on_beside_one_that_never_gives_way", after - begin > 800, "%ld ms", after - begin);

    if (holder > 0) {
        kill(holder, SIGKILL);
        MUST(waitpid(holder, NULL, 0) != holder);
        MUST(truncate(path, 0));
    }
    until = ahead(CLOCK_MONOTONIC, 300000000);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++)
        join(threads[i]);
    check("goes_on_when_the_file_is_cut_short", 1, "-");
    return verdict();
}
