/* Naming another thread, and reading its name, while it runs, while it is parked, and when it has
   ended: then no other thread gets the name. Its folder and name in procfs are there for who asks, by the process's id,
   too. */
#include "case.h"
#include <fcntl.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static sem_t release;

static void *parked(void *unused)
{
    sem_wait(&release);
    static char name[16];
    pthread_getname_np(pthread_self(), name, sizeof name);
    (void)unused;
    return name;
}

static _Atomic long ended_id;

static void *ends(void *unused)
{
    ended_id = syscall(SYS_gettid);
    sem_wait(&release);
    return unused;
}

static void name_of_an_ended_thread(void)
{
    pthread_t ended = start(ends, NULL);
    while (ended_id == 0)
        sched_yield();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/comm", ended_id);
    int early = open(path, O_RDWR | O_CLOEXEC);
    sem_post(&release);
    for (int late; (late = open(path, O_RDWR | O_CLOEXEC)) >= 0; close(late))
        sched_yield();
    pthread_t fresh = start(parked, NULL);
    MUST(pthread_setname_np(fresh, "fresh"));
    int set = pthread_setname_np(ended, "late");
    if (write(early, "early", 5) < 0)
        errno = 0;
    close(early);
    sem_post(&release);
    char *name = join(fresh);
    check("setname_ended", set != 0, "%d", set);
    check("name_of_fresh", strcmp(name, "fresh") == 0, "%s", name);
    join(ended);
}

static void has(const char *name, const char *path, const char *text)
{
    struct stat status;
    struct statx more;
    char found[32] = "";
    int asked[] = {
        syscall(SYS_access, path, R_OK),
        syscall(SYS_faccessat, AT_FDCWD, path, R_OK),
        syscall(SYS_faccessat2, AT_FDCWD, path, F_OK, AT_EACCESS),
        stat(path, &status),
        lstat(path, &status),
        syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0),
        statx(AT_FDCWD, path, 0, STATX_TYPE, &more),
    };
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        check(name, asked[i] == 0, "call %zu of %s: %d, errno %d", i, path, asked[i], errno);
    mode_t kind = text == NULL ? S_IFDIR : S_IFREG;
    check(name, (status.st_mode & S_IFMT) == kind, "mode %o of %s", status.st_mode, path);
    if (text == NULL)
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, found, sizeof found - 1) > 0)
        found[strcspn(found, "\n")] = 0;
    check(name, strcmp(found, text) == 0, "%s in %s", found, path);
    close(file);
}

static void *is_there(void *unused)
{
    char path[64];
    long id = syscall(SYS_gettid), process = getpid();
    MUST(pthread_setname_np(pthread_self(), "seen"));
    snprintf(path, sizeof path, "/proc/self/task/%ld", id);
    has("folder_of_self", path, NULL);
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/", process, id);
    has("folder_of_process", path, NULL);
    snprintf(path, sizeof path, "/proc/self/task/%ld/comm", id);
    has("name_of_self", path, "seen");
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/comm", process, id);
    has("name_of_process", path, "seen");
    has("name_of_thread", "/proc/thread-self/comm", "seen");
    /* Larger than any thread's. */
    int none = access("/proc/self/task/2147483647/comm", F_OK);
    check("nobodys_name", none == -1 && errno == ENOENT, "%d, errno %d", none, errno);
    return unused;
}

int main(void)
{
    MUST(sem_init(&release, 0, 0));
    pthread_t thread = start(parked, NULL);
    settle();
    char name[16] = "";
    int set = pthread_setname_np(thread, "renamed");
    int got = pthread_getname_np(thread, name, sizeof name);
    sem_post(&release);
    char *own = join(thread);
    check("setname_other", set == 0 && got == 0 && strcmp(name, "renamed") == 0, "%d, %d, %s", set,
          got, name);
    check("name_seen_by_itself", strcmp(own, "renamed") == 0, "%s", own);
    name_of_an_ended_thread();
    join(start(is_there, NULL));
    return verdict();
}
