/* Five hundred threads block in the kernel at once, are released, and do so again: all come back, and
 * the kernel threads that carried them do not stay. */
#include "case.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>

enum { THREADS = 500, SURPLUS = 100 };

static char path[] = "/tmp/blocks_500.XXXXXX";
static int begun, got;

static void *block(void *unused)
{
    (void)unused;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    __atomic_fetch_add(&begun, 1, __ATOMIC_RELEASE);
    if (file >= 0 && flock(file, LOCK_SH) == 0) {
        __atomic_fetch_add(&got, 1, __ATOMIC_RELAXED);
    }
    close(file);
    return NULL;
}

static int kernel_threads(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        count += task->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

int main(void)
{
    int owner = mkstemp(path);
    MUST(owner < 0);
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstacksize(&attributes, 1 << 16));
    for (int turn = 0; turn < 3; turn++) {
        begun = got = 0;
        MUST(flock(owner, LOCK_EX));
        for (int index = 0; index < THREADS; index++) {
            MUST(pthread_create(&threads[index], &attributes, block, NULL));
        }
        while (__atomic_load_n(&begun, __ATOMIC_ACQUIRE) < THREADS) {
            settle();
        }
        settle();
        MUST(flock(owner, LOCK_UN));
        for (int index = 0; index < THREADS; index++) {
            MUST(pthread_join(threads[index], NULL));
        }
        check("all got the lock", got == THREADS, "%d of %d", got, THREADS);
    }
    int left = kernel_threads();
    for (int turn = 0; turn < 100 && left > SURPLUS; turn++) {
        settle();
        left = kernel_threads();
    }
    check("kernel threads go again", left <= SURPLUS, "%d are left", left);
    char program[8];
    check("the process still has its program", readlink("/proc/self/exe", program, 8) == 8, "errno %d",
          errno);
    unlink(path);
    return verdict();
}
