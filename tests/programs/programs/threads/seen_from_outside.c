/* A program with a thread, and three children of fork(2): one is like a copy, one makes a thread of its own, and one
 * executes another program. Each says its name and its number, and stays. */
#include "case.h"
#include <stdlib.h>

static void *stay(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

static void make_thread(void)
{
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, stay, NULL));
}

static void say(const char *name)
{
    printf("%s %d\n", name, getpid());
    fflush(stdout);
}

static void nothing(void) {}

static void execute(void)
{
    say("executes");
    execlp("sleep", "sleep", "100000", (char *)NULL);
    exit(1);
}

static void child(const char *name, void (*does)(void))
{
    if (fork() == 0) {
        does();
        say(name);
        stay(NULL);
    }
}

int main(void)
{
    make_thread();
    child("copy", nothing);
    child("threads", make_thread);
    child("executes", execute);
    say("parent");
    stay(NULL);
}
