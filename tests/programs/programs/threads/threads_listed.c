/* /proc/self/task lists the program's threads: while they run, when they have ended, from any descriptor, and after
 * rewinddir(3). Its links count them, as do the texts of `status` and `stat`. */
#include "case.h"
#include <dirent.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { NR_THREADS = 200 };

static sem_t begun, release;
static _Atomic pid_t ids[NR_THREADS];

static void *waits(void *own)
{
    *(_Atomic pid_t *)own = gettid();
    sem_post(&begun);
    sem_wait(&release);
    return NULL;
}

/* How many threads a directory lists; -1: one that was expected is missing, or the order is odd. */
static int listed(DIR *directory, int expected)
{
    int count = 0, found = 0, dots = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.') {
            dots++;
            continue;
        }
        pid_t id = atoi(entry->d_name);
        count++;
        if (entry->d_type != DT_DIR || entry->d_ino == 0)
            return -1;
        found += id == getpid();
        for (int i = 0; i < expected; i++)
            found += id == ids[i];
    }
    return dots == 2 && found == expected + 1 ? count : -1;
}

static int links(const char *path)
{
    struct stat status;
    MUST(stat(path, &status));
    return (int)status.st_nlink - 2;
}

/* The number behind so many blanks from the name's end in a text of `stat`, or behind `Threads:` in one of `status`. */
static int number_in(const char *text)
{
    const char *at = strstr(text, "\nThreads:\t");
    if (at != NULL)
        return atoi(at + 10);
    at = strrchr(text, ')');
    for (int blanks = 0; at != NULL && blanks < 18; blanks++)
        at = strchr(at + 1, ' ');
    return at != NULL ? atoi(at) : -1;
}

/* The number of threads in a file: by one read, by the same descriptor again, by small reads, and by stdio. The end of the
 * file must be there each time. */
static void numbers(const char *when, const char *path, int expected)
{
    static char text[8192], last[64];
    char name[64];
#define IN_TEXT(how, length)                                                                       \
    do {                                                                                           \
        long got = (length);                                                                       \
        text[got > 0 ? got : 0] = 0;                                                               \
        snprintf(name, sizeof name, "%s_%s_%s", when, strrchr(path, '/') + 1, how);               \
        int is_whole = got > 32 && (last[0] == 0 || strstr(text, last) != NULL);                   \
        check(name, number_in(text) == expected + 1 && is_whole, "%d, %ld bytes", number_in(text), got); \
    } while (0)
    int file = open(path, O_RDONLY);
    last[0] = 0;
    IN_TEXT("by_read", read(file, text, sizeof text - 1));
    /* It is there in each text, and in the last piece. */
    const char *end = strstr(text, "nonvoluntary_ctxt_switches:");
    if (end != NULL)
        strcpy(last, "nonvoluntary_ctxt_switches:");
    lseek(file, 0, SEEK_SET);
    IN_TEXT("by_second_read", read(file, text, sizeof text - 1));
    IN_TEXT("by_pread", pread(file, text, sizeof text - 1, 0));
    lseek(file, 0, SEEK_SET);
    long length = 0, more;
    for (int size = end != NULL ? 1000 : 150; (more = read(file, text + length, size)) > 0;)
        length += more;
    IN_TEXT("by_parts", length);
    close(file);
    FILE *stream = fopen(path, "r");
    length = fread(text, 1, sizeof text - 1, stream);
    IN_TEXT("by_stdio", length);
    fclose(stream);
}

/* What listing and counting say, in all ways. */
static void counts(const char *when, int expected)
{
    char name[64], path[64];
#define SAYS(how, value)                                                                           \
    do {                                                                                           \
        int says = (value);                                                                        \
        snprintf(name, sizeof name, "%s_by_%s", when, how);                                        \
        check(name, says == expected + 1, "%d", says);                                             \
    } while (0)
    DIR *directory = opendir("/proc/self/task");
    SAYS("list", listed(directory, expected));
    rewinddir(directory);
    SAYS("rewound", listed(directory, expected));
    int copy = dup(dirfd(directory));
    rewinddir(directory);
    DIR *same = fdopendir(copy);
    SAYS("copied_descriptor", listed(same, expected));
    closedir(same);
    struct stat status;
    MUST(fstat(dirfd(directory), &status));
    SAYS("fstat", (int)status.st_nlink - 2);
    closedir(directory);
    snprintf(path, sizeof path, "/proc/%d/task", getpid());
    directory = opendir(path);
    SAYS("list_of_id", listed(directory, expected));
    closedir(directory);
    int base = open("/proc/self", O_PATH | O_DIRECTORY);
    directory = fdopendir(openat(base, "task", O_RDONLY | O_DIRECTORY));
    SAYS("list_from_descriptor", listed(directory, expected));
    closedir(directory);
    MUST(fstatat(base, "task", &status, 0));
    SAYS("fstatat", (int)status.st_nlink - 2);
    close(base);
    numbers(when, "/proc/self/status", expected);
    numbers(when, "/proc/self/stat", expected);
    SAYS("stat", links("/proc/self/task"));
    SAYS("stat_of_id", links(path));
    MUST(lstat(path, &status));
    SAYS("lstat", (int)status.st_nlink - 2);
    MUST(syscall(SYS_stat, path, &status));
    SAYS("old_stat", (int)status.st_nlink - 2);
    MUST(syscall(SYS_lstat, path, &status));
    SAYS("old_lstat", (int)status.st_nlink - 2);
    int file = open(path, O_RDONLY);
    MUST(syscall(SYS_fstat, file, &status));
    SAYS("old_fstat", (int)status.st_nlink - 2);
    close(file);
    struct statx more;
    MUST(statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &more));
    SAYS("statx", (int)more.stx_nlink - 2);
    check("other_directory", links("/proc/self") > 2, "%d", links("/proc/self"));
}

/* Small buffers, the old call, and going on at a position that was told. */
static void positions(void)
{
    int file = open("/proc/self/task", O_RDONLY | O_DIRECTORY);
    _Alignas(8) char small[64];
    errno = 0;
    check("no_room", syscall(SYS_getdents64, file, small, 16) == -1 && errno == EINVAL, "errno %d", errno);
    errno = 0;
    check("no_memory", syscall(SYS_getdents64, file, (void *)8, 4096) == -1 && errno == EFAULT, "errno %d", errno);
    int count = 0;
    long length;
    while ((length = syscall(SYS_getdents64, file, small, sizeof small)) > 0)
        for (long at = 0; at < length; at += *(uint16_t *)(small + at + 16))
            count++;
    check("parts", length == 0 && count == NR_THREADS + 3, "%ld, %d", length, count);
    lseek(file, 0, SEEK_SET);
    count = 0;
    while ((length = syscall(SYS_getdents, file, small, sizeof small)) > 0)
        for (long at = 0, size; at < length; at += size, count++) {
            size = *(uint16_t *)(small + at + 16);
            if (small[at + size - 1] != DT_DIR || strlen(small + at + 18) > 10)
                count += 1000;
        }
    check("old_parts", length == 0 && count == NR_THREADS + 3, "%ld, %d", length, count);
    close(file);
    DIR *directory = opendir("/proc/self/task");
    for (int i = 0; i < 10; i++)
        readdir(directory);
    long place = telldir(directory);
    char tenth[32], again[32];
    snprintf(tenth, sizeof tenth, "%.31s", readdir(directory)->d_name);
    while (readdir(directory) != NULL)
        ;
    seekdir(directory, place);
    snprintf(again, sizeof again, "%.31s", readdir(directory)->d_name);
    check("told_position", strcmp(tenth, again) == 0, "%s, %s", tenth, again);
    closedir(directory);
}

static void *asks(void *unused)
{
    DIR *directory = opendir("/proc/thread-self/../../task");
    int count = listed(directory, NR_THREADS);
    check("list_from_a_thread", count == NR_THREADS + 2, "%d", count);
    /* With a nice value of its own. */
    MUST(setpriority(PRIO_PROCESS, (id_t)gettid(), 1));
    rewinddir(directory);
    count = listed(directory, NR_THREADS);
    check("list_from_a_nice_thread", count == NR_THREADS + 2, "%d", count);
    closedir(directory);
    check("links_from_a_nice_thread", links("/proc/self/task") == NR_THREADS + 2, "%d", links("/proc/self/task"));
    numbers("from_a_nice_thread", "/proc/self/status", NR_THREADS + 1);
    numbers("from_a_nice_thread", "/proc/self/stat", NR_THREADS + 1);
    return unused;
}

static int in_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        DIR *directory = opendir("/proc/self/task");
        _exit(listed(directory, 0) == 1 && links("/proc/self/task") == 1 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

int main(void)
{
#ifdef NEEDS_AGENTS
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    MUST(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    MUST(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
#endif
    MUST(sem_init(&begun, 0, 0));
    MUST(sem_init(&release, 0, 0));
    counts("before_threads", 0);
    pthread_t threads[NR_THREADS];
    for (int i = 0; i < NR_THREADS; i++)
        threads[i] = start(waits, (void *)&ids[i]);
    for (int i = 0; i < NR_THREADS; i++)
        sem_wait(&begun);
    counts("while_threads_wait", NR_THREADS);
    positions();
    join(start(asks, NULL));
    check("list_of_a_child", in_child() == 0, "no");
    for (int i = 0; i < NR_THREADS; i++)
        sem_post(&release);
    for (int i = 0; i < NR_THREADS; i++)
        join(threads[i]);
    /* The kernel, too, may know a thread for a moment after it was joined. */
    while (links("/proc/self/task") != 1)
        sched_yield();
    counts("after_threads", 0);
    return verdict();
}
