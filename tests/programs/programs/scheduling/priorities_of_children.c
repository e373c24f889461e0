/* The policy and the nice value that a thread has asked for are those of the processes that it makes, however it makes them,
 * and of the program that it executes; with SCHED_RESET_ON_FORK only what takes no privilege is. Real-time policies and negative
 * nice values where the kernel grants them natively. */
#include "case.h"
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

extern char **environ;
static char self[4096], expected[64];

struct has {
    int policy, priority, nice;
};

static struct has own(void)
{
    struct sched_param parameters = {-1};
    sched_getparam(0, &parameters);
    return (struct has){sched_getscheduler(0), parameters.sched_priority, getpriority(PRIO_PROCESS, 0)};
}

static void said(char *text, struct has has) { sprintf(text, "%x %d %d", has.policy, has.priority, has.nice); }

static int is_as_expected(void)
{
    char text[64];
    said(text, own());
    if (strcmp(text, expected) != 0)
        fprintf(stderr, "%s, not %s\n", text, expected);
    return strcmp(text, expected) == 0;
}

static void *holds(void *unused)
{
    (void)unused;
    /* Waits once, so that another kernel thread has its turn. */
    settle();
    return is_as_expected() ? self : NULL;
}

static int ends_well(pid_t child)
{
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}

/* Bits of what is wrong in the children of the calling thread. */
static int children(struct has wanted)
{
    said(expected, wanted);
    char *words[] = {self, expected, NULL};
    pid_t child = fork();
    if (child == 0)
        _exit(!is_as_expected());
    int found = !ends_well(child);
    child = vfork();
    if (child == 0)
        _exit(!is_as_expected());
    found |= !ends_well(child) << 1;
    child = fork();
    if (child == 0) {
        execv(self, words);
        _exit(1);
    }
    found |= !ends_well(child) << 2;
    child = vfork();
    if (child == 0) {
        execv("/nothing/of/that/name", words);
        execv(self, words);
        _exit(1);
    }
    found |= !ends_well(child) << 3;
    MUST(posix_spawn(&child, self, NULL, NULL, words, environ));
    found |= !ends_well(child) << 4;
    child = fork();
    if (child == 0)
        _exit(join(start(holds, NULL)) == NULL || !is_as_expected());
    return found | !ends_well(child) << 5;
}

struct asked {
    const char *name;
    struct has has, of_children;
};

static int set(pid_t whose, struct has wanted)
{
    struct sched_param parameters = {wanted.priority};
    return setpriority(PRIO_PROCESS, whose, wanted.nice) == 0 && sched_setscheduler(whose, wanted.policy, &parameters) == 0;
}

/* Whether the kernel grants it: for another process nobody else does. */
static int is_granted(struct has wanted)
{
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    int is = set(child, wanted);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return is;
}

static void *asks(void *asked)
{
    const struct asked *one = asked;
    if (!set(0, one->has))
        return (void *)-1L;
    return (void *)(long)children(one->of_children);
}

/* The program that a thread executes, while another one waits, has what the thread has. */
static void *executes(void *asked)
{
    const struct asked *one = asked;
    char *words[] = {self, expected, NULL};
    if (!set(0, one->has))
        _exit(0);
    said(expected, one->has);
    execv("/nothing/of/that/name", words);
    execv(self, words);
    _exit(1);
}

static void is_for_children(const struct asked *one)
{
    if (!is_granted(one->has)) {
        check(one->name, 1, "not granted");
        return;
    }
    long found = (long)join(start(asks, (void *)one));
    check(one->name, found == 0, "%lx", found);
    pid_t child = fork();
    if (child == 0) {
        join(start(executes, (void *)one));
        _exit(1);
    }
    check("executed", ends_well(child), "%s", one->name);
}

int main(int count, char **words)
{
    MUST(readlink("/proc/self/exe", self, sizeof self - 1) < 0);
    if (count > 1) {
        strcpy(expected, words[1]);
        /* Its threads have that, too, if it is not reset. */
        return !is_as_expected() || (!(own().policy & SCHED_RESET_ON_FORK) && join(start(holds, NULL)) == NULL);
    }
    static const struct asked all[] = {
        {"nice", {SCHED_OTHER, 0, 10}, {SCHED_OTHER, 0, 10}},
        {"batch", {SCHED_BATCH, 0, 3}, {SCHED_BATCH, 0, 3}},
        {"idle", {SCHED_IDLE, 0, 0}, {SCHED_IDLE, 0, 0}},
        {"batch_that_resets", {SCHED_BATCH | SCHED_RESET_ON_FORK, 0, 4}, {SCHED_BATCH, 0, 4}},
        {"urgent", {SCHED_OTHER, 0, -5}, {SCHED_OTHER, 0, -5}},
        {"urgent_that_resets", {SCHED_OTHER | SCHED_RESET_ON_FORK, 0, -5}, {SCHED_OTHER, 0, 0}},
        {"real_time", {SCHED_RR, 3, 0}, {SCHED_RR, 3, 0}},
        {"real_time_that_resets", {SCHED_FIFO | SCHED_RESET_ON_FORK, 3, 7}, {SCHED_OTHER, 0, 0}},
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        is_for_children(&all[i]);
    struct has first = own();
    int found = children(first);
    check("of_the_first", found == 0, "%x", found);
    MUST(setpriority(PRIO_PROCESS, 0, 5));
    first.nice = 5;
    found = children(first);
    check("of_the_first_with_another", found == 0, "%x", found);
    return verdict();
}
