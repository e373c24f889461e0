/* setuid, setgid and setgroups reach every thread, running or parked, and every kernel thread of
 * the process. Runs in a child, as root; elsewhere there is nothing to change. */
#include "case.h"
#include <dirent.h>
#include <grp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOBODY 65534
static atomic_int wrong, go, arrived;

static void *asker(void *unused)
{
    atomic_fetch_add(&arrived, 1);
    while (!atomic_load(&go))
        usleep(1000);
    /* The kernel's own answer and not libc's. */
    if (syscall(SYS_getuid) != NOBODY || syscall(SYS_getgid) != NOBODY || setuid(0) == 0)
        atomic_fetch_add(&wrong, 1);
    return unused;
}

/* Kernel threads of this process that still have another user id. */
static int stragglers(void)
{
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        char path[300], line[256];
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        FILE *status = fopen(path, "r");
        if (status == NULL)
            continue;
        int real, effective, saved, filesystem;
        while (fgets(line, sizeof line, status) != NULL)
            if (sscanf(line, "Uid: %d %d %d %d", &real, &effective, &saved, &filesystem) == 4 &&
                (real != NOBODY || effective != NOBODY || saved != NOBODY || filesystem != NOBODY))
                found++;
        fclose(status);
    }
    if (tasks != NULL)
        closedir(tasks);
    return found;
}

static void expired(union sigval value) { (void)value; }

static int drop(void)
{
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        threads[i] = start(asker, NULL);
    while (atomic_load(&arrived) < 6)
        sched_yield();
    /* libc's own helper, a kernel thread everywhere. */
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = expired};
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    MUST(setgroups(0, NULL));
    MUST(setgid(NOBODY));
    MUST(setuid(NOBODY));
    int left = stragglers();
    atomic_store(&go, 1);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    check("setuid_kernel_threads", left == 0, "%d kernel threads kept their user", left);
    check("setuid_threads", wrong == 0, "%d threads kept their user", wrong);
    pthread_t late = start(asker, NULL);
    join(late);
    check("setuid_new_threads", wrong == 0, "a new thread has another user");
    return verdict();
}

int main(void)
{
    if (geteuid() != 0) {
        check("setuid_unprivileged", setuid(getuid()) == 0, "errno %d", errno);
        return verdict();
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        exit(drop());
    int status = -1;
    waitpid(child, &status, 0);
    check("setuid_child", status == 0, "status %#x", status);
    return verdict();
}
