/* The process sees other files than its parent: the directory of its first argument is under a new mount, or,
 * without one, below another root. What it executes there finds its environment and nothing to complain of. */
#include "case.h"
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char *const arguments[] = {"sh", "-c", "echo \"in sh: $LD_PRELOAD, $OTHER\"", NULL};
extern char **environ;

static void ended(const char *name, pid_t child)
{
    int status = -1;
    pid_t waited = waitpid(child, &status, 0);
    check(name, child > 0 && waited == child && status == 0, "child %d, status %x", child, status);
}

static void *spawns(void *name)
{
    pid_t child = 0;
    MUST(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ));
    ended(name, child);
    return NULL;
}

static void everything(void)
{
    spawns("posix_spawn");
    pid_t child = fork();
    if (child == 0) {
        execve("/bin/sh", arguments, environ);
        _exit(9);
    }
    ended("fork and execve", child);
    child = vfork();
    if (child == 0) {
        execve("/bin/sh", arguments, environ);
        _exit(9);
    }
    ended("vfork and execve", child);
    child = fork();
    if (child == 0) {
        int file = open("/bin/sh", O_PATH | O_CLOEXEC);
        fexecve(file, arguments, environ);
        _exit(9);
    }
    ended("fexecve", child);
    child = fork();
    if (child == 0) {
        char *const none[] = {NULL};
        execve("/bin/sh", arguments, none);
        _exit(9);
    }
    ended("no environment", child);
    int error = execve("/no/such/file", arguments, environ);
    check("a failed execve", error == -1 && errno == ENOENT, "%d, errno %d", error, errno);
    error = execve("/bin/sh", arguments, (char *const *)8);
    check("a bad environment", error == -1 && errno == EFAULT, "%d, errno %d", error, errno);
}

static long mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    long lines = 0;
    for (int c; maps != NULL && (c = fgetc(maps)) != EOF;) {
        lines += c == '\n';
    }
    fclose(maps);
    return lines;
}

int main(int count, char **words)
{
    MUST(setenv("OTHER", "variable", 1));
    MUST(unshare(CLONE_NEWNS));
    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    if (count > 1) {
        MUST(mount("none", words[1], "tmpfs", 0, NULL));
    } else {
        MUST(mkdir("root", 0755));
        MUST(mount("none", "root", "tmpfs", 0, NULL));
        MUST(chdir("root"));
        for (const char *const *part = (const char *const[]){"bin", "lib", "lib64", "usr", "proc", NULL};
             *part != NULL; part++) {
            char from[16];
            snprintf(from, sizeof from, "/%s", *part);
            MUST(mkdir(*part, 0755));
            MUST(mount(from, *part, NULL, MS_BIND | MS_REC, NULL));
        }
        MUST(chroot("."));
        MUST(chdir("/"));
    }
    everything();
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, spawns, "posix_spawn by a thread"));
    MUST(pthread_join(thread, NULL));
    everything();
    long before = mappings();
    for (int i = 0; i < 100; i++) {
        spawns("again");
    }
    long after = mappings();
    check("mappings stay as many", after <= before + 4, "%ld, then %ld", before, after);
    return verdict();
}
