/* exec from a thread while others run: the new program replaces all of it. */
#include "case.h"
#include <stdatomic.h>

static atomic_int running;

static void *noise(void *unused)
{
    atomic_fetch_add(&running, 1);
    for (;;)
        sched_yield();
    return unused;
}

static void *sleeper(void *unused)
{
    atomic_fetch_add(&running, 1);
    for (;;)
        sleep(1000);
    return unused;
}

static void *echo(void *argument) { return argument; }

static void *executor(void *self)
{
    execl((char *)self, "exec_from_thread", "second", (char *)NULL);
    printf("FAIL exec_from_thread: errno %d\n", errno);
    exit(1);
}

int main(int count, char **words)
{
    if (count > 1) {
        check("exec_from_thread", strcmp(words[1], "second") == 0, "argument %s", words[1]);
        check("exec_then_thread", join(start(echo, words)) == words, "wrong result");
        return verdict();
    }
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return 1;
    self[length] = 0;
    start(noise, NULL);
    start(sleeper, NULL);
    while (atomic_load(&running) < 2)
        sched_yield();
    start(executor, self);
    for (;;)
        pause();
}
