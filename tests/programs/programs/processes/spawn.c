/* posix_spawn with pipes, vfork + exec, popen and system, from several threads at once. */
#include "case.h"
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>

extern char **environ;
static atomic_int wrong;

static int exit_code(pid_t pid)
{
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void by_spawn(int value)
{
    char script[64], text[16] = "";
    int ends[2];
    snprintf(script, sizeof script, "echo %d; exit %d", value, value % 50);
    char *const words[] = {"sh", "-c", script, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    MUST(pipe2(ends, 02000000)); /* O_CLOEXEC */
    MUST(posix_spawn_file_actions_init(&actions));
    MUST(posix_spawn_file_actions_adddup2(&actions, ends[1], 1));
    MUST(posix_spawn(&pid, "/bin/sh", &actions, NULL, words, environ));
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    ssize_t got = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    if (exit_code(pid) != value % 50 || got < 0 || atoi(text) != value)
        atomic_fetch_add(&wrong, 1);
}

static void by_vfork(int value)
{
    char script[32];
    snprintf(script, sizeof script, "exit %d", value % 50);
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(99);
    }
    if (exit_code(pid) != value % 50)
        atomic_fetch_add(&wrong, 1);
}

static void by_popen(int value)
{
    char script[64], text[16] = "";
    snprintf(script, sizeof script, "echo %d; exit %d", value, value % 50);
    FILE *stream = popen(script, "r");
    if (stream == NULL || fgets(text, sizeof text, stream) == NULL || atoi(text) != value)
        atomic_fetch_add(&wrong, 1);
    if (stream == NULL || WEXITSTATUS(pclose(stream)) != value % 50)
        atomic_fetch_add(&wrong, 1);
}

static void by_system(int value)
{
    char script[32];
    snprintf(script, sizeof script, "exit %d", value % 50);
    if (WEXITSTATUS(system(script)) != value % 50)
        atomic_fetch_add(&wrong, 1);
}

static void (*const ways[])(int) = {by_spawn, by_vfork, by_popen, by_system};

static void *body(void *way)
{
    for (int i = 0; i < 5; i++)
        ways[(long)way % 4]((int)(long)way * 10 + i);
    return NULL;
}

int main(void)
{
    static const char *const names[] = {"posix_spawn", "vfork_exec", "popen", "system"};
    for (long way = 0; way < 4; way++) {
        atomic_store(&wrong, 0);
        body((void *)way);
        check(names[way], wrong == 0, "%d of 5 wrong", wrong);
    }
    atomic_store(&wrong, 0);
    pthread_t threads[6];
    for (long i = 0; i < 6; i++)
        threads[i] = start(body, (void *)i);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    check("spawn_from_threads", wrong == 0, "%d wrong", wrong);
    return verdict();
}
