/* A program that gets no more kernel threads than it has threads takes turns with another one. The last activation that is
 * not blocked waits for its processor and for the descriptors of the threads: it goes on when the other one rests.
 * The file of the turns is one of this program's own: the directories where it would be are fresh ones, in a mount
 * namespace. */
#include "case.h"
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define ROUNDS 15
#define SLOT 5
#define SLOT_SIZE 128
#define THREADS 3

static struct counts {
    atomic_int stop;
    atomic_long computed, received;
    long before, after;
} *counts;
static int to_reader[2], to_child[2];

static void *computes(void *unused)
{
    while (!atomic_load(&counts->stop))
        atomic_fetch_add(&counts->computed, 1);
    return unused;
}

static void *receives(void *unused)
{
    char byte;
    while (read(to_reader[0], &byte, 1) == 1)
        atomic_fetch_add(&counts->received, 1);
    return unused;
}

static int is_private(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0
        && mount("none", "/run", "tmpfs", 0, NULL) == 0
        && mount("none", "/dev/shm", "tmpfs", 0, "mode=1777") == 0;
}

/* The slot of the other program in the file of the turns, if this one takes them; or a place where nobody looks. */
static char *slot(void)
{
    static char nowhere[SLOT_SIZE], path[300];
    DIR *directory = opendir("/dev/shm");
    struct dirent *entry;
    while (directory && (entry = readdir(directory)))
        if (strncmp(entry->d_name, "upcall-turns-", 13) == 0)
            snprintf(path, sizeof path, "/dev/shm/%s", entry->d_name);
    closedir(directory);
    if (!path[0])
        return nowhere;
    int file = open(path, O_RDWR);
    char *memory = mmap(NULL, SLOT_SIZE * 65, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    MUST(memory == MAP_FAILED);
    *(_Atomic uint32_t *)(memory + 16) = 64;
    return memory + SLOT_SIZE * (1 + SLOT);
}

/* The other program: has all processors for a while, and none for a while. */
static void other(void)
{
    char byte = 0;
    MUST(read(to_child[0], &byte, 1) != 1);
    char *own = slot();
    *(_Atomic uint32_t *)own = (uint32_t)getpid();
    for (int round = 0; round < ROUNDS; round++) {
        if (round == ROUNDS / 3)
            counts->before = counts->computed;
        memset(own + 48, 0xff, 32);
        for (int i = 0; i < 10; i++) {
            uint64_t time = (uint64_t)now(CLOCK_MONOTONIC);
            *(_Atomic uint64_t *)(own + 8) = time;
            *(_Atomic uint64_t *)(own + 32) = time;
            usleep(10000);
            MUST(i == 5 && write(to_reader[1], &byte, 1) != 1);
        }
        memset(own + 48, 0, 32);
        *(_Atomic uint64_t *)(own + 8) = 0;
        usleep(100000);
    }
    counts->after = counts->computed;
    _exit(0);
}

int main(void)
{
    if (geteuid() != 0 || !is_private()) {
        fprintf(stderr, "skipped: no user of its own, or no mount namespace\n");
        return 0;
    }
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(counts == MAP_FAILED);
    MUST(pipe(to_reader));
    MUST(pipe(to_child));
    /* Two open files, so that the lock of one excludes the other: the child has the first one from its beginning. */
    int held = open("/dev/shm/lock", O_RDWR | O_CREAT, 0600), lock = open("/dev/shm/lock", O_RDWR);
    MUST(held < 0 || lock < 0);
    MUST(flock(held, LOCK_EX));
    pid_t child = fork();
    if (child == 0)
        other();
    MUST(child < 0 || close(held));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    MUST(sched_setaffinity(0, sizeof one, &one));
    /* A user with no other process, who may have as many kernel threads as there are threads. */
    uid_t user = 1000000 + (uid_t)getpid();
    struct rlimit threads = {THREADS, THREADS};
    MUST(setresuid(user, user, user));
    MUST(setrlimit(RLIMIT_NPROC, &threads));
    pthread_t computer = start(computes, NULL), receiver = start(receives, NULL);
    MUST(write(to_child[1], "", 1) != 1);
    /* Blocks in the kernel, where no poller helps, until the child ends. */
    MUST(flock(lock, LOCK_EX));
    MUST(waitpid(child, NULL, 0) != child);
    atomic_store(&counts->stop, 1);
    MUST(close(to_reader[1]));
    join(computer);
    join(receiver);
    check("computes", counts->after > counts->before, "%ld, then %ld", counts->before, counts->after);
    check("receives", counts->received == ROUNDS, "%ld", counts->received);
    return verdict();
}
