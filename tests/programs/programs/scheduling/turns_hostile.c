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
/* No thread waits so long, in milliseconds, for its processor. For a turn it waits longer, and then takes part in none for
 * ten seconds. */
#define GAP 700
#define APART 10000
#define SLOT 5
#define SLOT_SIZE 128

static atomic_int stop;
static struct counts {
    atomic_long ran, gaps;
} counted[2];
static char path[300];

static long long milliseconds(void) { return now(CLOCK_MONOTONIC) / 1000000; }

/* Counts the milliseconds in which it has run, and how often it did not for long. */
static void *spin(void *argument)
{
    struct counts *own = argument;
    long long last = milliseconds();
    while (!atomic_load(&stop)) {
        long long time = milliseconds();
        if (time != last)
            atomic_fetch_add(&own->ran, 1);
        if (time - last > GAP)
            atomic_fetch_add(&own->gaps, 1);
        last = time;
    }
    return NULL;
}

static long ran(void) { return counted[0].ran + counted[1].ran; }

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
        threads[i] = start(spin, &counted[i]);
    pid_t holder = -1;
    if (find()) {
        holder = fork();
        if (holder == 0)
            hold();
    }
    long before = ran();
    long long begin = milliseconds(), time;
    do {
        sleep(1);
        time = milliseconds() - begin;
    } while (time < SECONDS * 1000 || ran() - before < 800);
    for (int i = 0; i < 2; i++) {
        long gaps = counted[i].gaps;
        check("goes_on_beside_one_that_never_gives_way", gaps <= 1 + time / APART, "stopped %ld times in %lld ms", gaps, time);
    }

    if (holder > 0) {
        kill(holder, SIGKILL);
        MUST(waitpid(holder, NULL, 0) != holder);
        MUST(truncate(path, 0));
    }
    struct timespec until = ahead(CLOCK_MONOTONIC, 300000000);
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++)
        join(threads[i]);
    check("goes_on_when_the_file_is_cut_short", 1, "-");
    return verdict();
}
