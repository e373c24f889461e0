/* Threads block on what no poller can watch (a FIFO's open, a file lock, a child) while others
 * compute: the others go on, so that all of them end. */
#include "case.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

static atomic_long turns;
static atomic_int stop, opened, locked;
static char path[64];
static int lock_file;

static void *compute(void *unused)
{
    while (!atomic_load(&stop))
        atomic_fetch_add(&turns, 1);
    return unused;
}

static void *open_fifo(void *unused)
{
    int fd = open(path, O_RDONLY);
    atomic_store(&opened, 1);
    char byte = 0;
    long got = read(fd, &byte, 1);
    close(fd);
    (void)unused;
    return (void *)(long)(got == 1 && byte == 'f');
}

static void *take_lock(void *unused)
{
    int own = open("lock", O_RDWR | O_CREAT, 0600);
    flock(own, LOCK_EX);
    atomic_store(&locked, 1);
    close(own);
    return unused;
}

static void *wait_child(void *unused)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        usleep(50000);
        _exit(31);
    }
    waitpid(child, &status, 0);
    (void)unused;
    return (void *)(long)WEXITSTATUS(status);
}

int main(void)
{
    snprintf(path, sizeof path, "fifo");
    MUST(mkfifo(path, 0600));
    lock_file = open("lock", O_RDWR | O_CREAT, 0600);
    MUST(flock(lock_file, LOCK_EX));
    pthread_t computing[4], fifo = start(open_fifo, NULL), lock = start(take_lock, NULL),
                            child = start(wait_child, NULL);
    for (int i = 0; i < 4; i++)
        computing[i] = start(compute, NULL);
    settle();
    check("blocking_open", !atomic_load(&opened) && !atomic_load(&locked), "they did not block");
    int writer = open(path, O_WRONLY);
    ssize_t wrote = write(writer, "f", 1);
    long got = (long)join(fifo);
    close(writer);
    check("fifo_open", wrote == 1 && got, "wrote %zd, read %ld", wrote, got);
    MUST(flock(lock_file, LOCK_UN));
    join(lock);
    check("file_lock", atomic_load(&locked), "not taken");
    long status = (long)join(child);
    check("wait_child", status == 31, "status %ld", status);
    atomic_store(&stop, 1);
    for (int i = 0; i < 4; i++)
        join(computing[i]);
    check("computing_meanwhile", turns > 1000, "%ld turns", turns);
    unlink(path);
    unlink("lock");
    return verdict();
}
