/* What a child that shares the memory for a while (posix_spawn, system, popen, vfork) does with its
   signal actions is its own: the parent's handlers stay, with one thread and with more. */
#include "case.h"
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
static volatile sig_atomic_t handled;

static void handler(int signal)
{
    (void)signal;
    handled++;
}

static void by_system(void)
{
    MUST(system("true"));
}

static void by_popen(void)
{
    FILE *stream = popen("true", "r");
    MUST(stream == NULL || pclose(stream) != 0);
}

static void by_spawn(void)
{
    char *const words[] = {"true", NULL};
    posix_spawnattr_t attributes;
    sigset_t defaults;
    pid_t pid;
    int status;
    sigfillset(&defaults);
    MUST(posix_spawnattr_init(&attributes));
    MUST(posix_spawnattr_setsigdefault(&attributes, &defaults));
    MUST(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF));
    MUST(posix_spawnp(&pid, "true", NULL, &attributes, words, environ));
    posix_spawnattr_destroy(&attributes);
    waitpid(pid, &status, 0);
}

static void by_vfork(void)
{
    int status;
    pid_t pid = vfork();
    if (pid == 0) {
        signal(SIGUSR1, SIG_DFL);
        signal(SIGUSR2, SIG_DFL);
        _exit(0);
    }
    waitpid(pid, &status, 0);
}

static void (*const ways[])(void) = {by_system, by_popen, by_spawn, by_vfork};
static const char *const names[] = {"system", "popen", "posix_spawn", "vfork"};

static void *all(void *when)
{
    for (int way = 0; way < 4; way++) {
        char name[64];
        struct sigaction action, ignored;
        handled = 0;
        ways[way]();
        MUST(sigaction(SIGUSR1, NULL, &action));
        MUST(sigaction(SIGUSR2, NULL, &ignored));
        snprintf(name, sizeof name, "%s_%s", names[way], (const char *)when);
        check(name, action.sa_handler == handler && ignored.sa_handler == SIG_IGN,
              "the parent's actions are %p and %p", (void *)action.sa_handler,
              (void *)ignored.sa_handler);
        raise(SIGUSR1);
        raise(SIGUSR2);
        snprintf(name, sizeof name, "%s_%s_handled", names[way], (const char *)when);
        check(name, handled == 1, "handled %d times", (int)handled);
    }
    return NULL;
}

int main(void)
{
    signal(SIGUSR1, handler);
    signal(SIGUSR2, SIG_IGN);
    all("before_threads");
    join(start(all, "in_a_thread"));
    all("after_threads");
    return verdict();
}
