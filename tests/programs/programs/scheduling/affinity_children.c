/* What a thread has asked for is what it is told, and what the processes that it starts and the
 * programs that they execute get: before the first thread, and beside others. */
#include "case.h"
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
static char self[4096];
static cpu_set_t all, one, other;

static const cpu_set_t *named(const char *name)
{
    return strcmp(name, "all") == 0 ? &all : strcmp(name, "one") == 0 ? &one : &other;
}

static int has(const cpu_set_t *wanted)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    return sched_getaffinity(0, sizeof mask, &mask) == 0 && CPU_EQUAL(&mask, wanted);
}

static void *holds(void *wanted) { return has(wanted) ? wanted : NULL; }

static int ends_well(pid_t child)
{
    int status = -1;
    return waitpid(child, &status, 0) == child && status == 0;
}

/* Bits of what is wrong. */
static int wrong(const char *name)
{
    char *words[] = {self, (char *)name, NULL};
    int found = !has(named(name));
    pid_t child = fork();
    if (child == 0)
        _exit(!has(named(name)));
    found |= !ends_well(child) << 1;
    child = fork();
    if (child == 0) {
        execv(self, words);
        _exit(1);
    }
    found |= !ends_well(child) << 2;
    child = vfork();
    if (child == 0) {
        execv(self, words);
        _exit(1);
    }
    found |= !ends_well(child) << 3;
    MUST(posix_spawn(&child, self, NULL, NULL, words, environ));
    found |= !ends_well(child) << 4;
    child = fork();
    if (child == 0) {
        /* Its own threads have what it has, and leave it alone. */
        if (join(start(holds, (void *)named(name))) == NULL)
            _exit(1);
        execv(self, words);
        _exit(1);
    }
    found |= !ends_well(child) << 5;
    return found;
}

static void *ask(void *unused)
{
    (void)unused;
    MUST(sched_setaffinity(0, sizeof other, &other));
    return (void *)(long)wrong("other");
}

static void *inherit(void *unused)
{
    (void)unused;
    return (void *)(long)wrong("one");
}

static void *compute(void *unused)
{
    for (volatile int busy = 0;; busy = !busy) {
    }
    return unused;
}

int main(int count, char **words)
{
    MUST(readlink("/proc/self/exe", self, sizeof self - 1) < 0);
    MUST(sched_getaffinity(0, sizeof all, &all));
    int first = -1, last = -1;
    if (count > 1) {
        /* Executed: by an inherited set, whose processors the parent has named by their order. */
        const char *set = getenv("SET_OF_ALL");
        MUST(set == NULL);
        cpu_set_t mask = all;
        CPU_ZERO(&all);
        CPU_ZERO(&one);
        CPU_ZERO(&other);
        for (int processor = 0; processor < CPU_SETSIZE && set[processor] != 0; processor++) {
            if (set[processor] == '1') {
                CPU_SET(processor, &all);
                first = first < 0 ? processor : first;
                last = processor;
            }
        }
        CPU_SET(first, &one);
        CPU_SET(last, &other);
        return !CPU_EQUAL(&mask, named(words[1]));
    }
    char set[CPU_SETSIZE + 1] = {0};
    for (int processor = 0; processor < CPU_SETSIZE; processor++) {
        set[processor] = CPU_ISSET(processor, &all) ? '1' : '0';
        if (CPU_ISSET(processor, &all)) {
            first = first < 0 ? processor : first;
            last = processor;
        }
    }
    MUST(setenv("SET_OF_ALL", set, 1));
    CPU_SET(first, &one);
    CPU_SET(last, &other);
    int found = wrong("all");
    check("affinity_children_nothing_asked", found == 0, "%x", found);
    MUST(sched_setaffinity(0, sizeof one, &one));
    found = wrong("one");
    check("affinity_children_without_threads", found == 0, "%x", found);
    MUST(sched_setaffinity(0, sizeof all, &all));
    pthread_t computes[2] = {start(compute, NULL), start(compute, NULL)};
    found = wrong("all");
    check("affinity_children_beside_threads", found == 0, "%x", found);
    found = (int)(long)join(start(ask, NULL));
    check("affinity_children_of_a_thread", found == 0, "%x", found);
    found = wrong("all");
    check("affinity_children_of_another", found == 0, "%x", found);
    MUST(sched_setaffinity(0, sizeof one, &one));
    found = (int)(long)join(start(inherit, NULL));
    check("affinity_children_inherited", found == 0, "%x", found);
    MUST(pthread_setaffinity_np(computes[0], sizeof other, &other));
    cpu_set_t mask;
    CPU_ZERO(&mask);
    MUST(pthread_getaffinity_np(computes[0], sizeof mask, &mask));
    check("affinity_of_another_thread", CPU_EQUAL(&mask, &other), "%d", CPU_COUNT(&mask));
    return verdict();
}
