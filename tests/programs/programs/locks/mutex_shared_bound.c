/* A mutex that inherits priorities and that processes share, taken by a thread that has a nice value of its own, while
 * others wait for it; and where the kernel finds that thread's robust mutexes. */
#include "shared_mutex.h"
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { ROUNDS = 500 };

/* What went wrong first: 0, or the number of an error. */
static long counts(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        int result = pthread_mutex_lock(&shared->mutex);
        if (result != 0)
            return result;
        long count = shared->count;
        sched_yield();
        shared->count = count + 1;
        result = pthread_mutex_unlock(&shared->mutex);
        if (result != 0)
            return result;
    }
    return 0;
}

static void *counts_free(void *unused)
{
    (void)unused;
    return (void *)counts();
}

static void *counts_bound(void *unused)
{
    (void)unused;
    MUST(setpriority(PRIO_PROCESS, 0, 3));
    return (void *)counts();
}

static void *waits_bound(void *unused)
{
    (void)unused;
    MUST(setpriority(PRIO_PROCESS, 0, 3));
    shared->flag = 1;
    int result = pthread_mutex_lock(&shared->mutex);
    int unlocked = pthread_mutex_unlock(&shared->mutex);
    return (void *)(long)(result != 0 ? result : unlocked);
}

static void *holds_bound(void *unused)
{
    MUST(setpriority(PRIO_PROCESS, 0, 3));
    MUST(pthread_mutex_lock(&shared->mutex));
    shared->held = 1;
    for (;;)
        pause();
    return unused;
}

/* The other process. */
static int peer(const char *what)
{
    if (strcmp(what, "counts") == 0)
        return (int)counts();
    if (strcmp(what, "counts_bound") == 0)
        return (int)(long)join(start(counts_bound, NULL));
    if (strcmp(what, "holds_bound") == 0) {
        join(start(holds_bound, NULL));
        return 1;
    }
    MUST(pthread_mutex_lock(&shared->mutex));
    shared->held = 1;
    while (!shared->flag)
        settle();
    settle();
    MUST(pthread_mutex_unlock(&shared->mutex));
    return 0;
}

static pid_t run(const char *what, int native)
{
    pid_t child = native ? native_peer(what, "") : fork();
    if (child == 0)
        exit(peer(what));
    return child;
}

static void try(int robust, int native)
{
    char name[64];
#define NAMED(text) (snprintf(name, sizeof name, "%s%s_%s", text, robust ? "_robust" : "", native ? "native" : "served"), name)
    make_mutex(robust, 1);
    pid_t child = run("holds", native);
    while (!shared->held)
        settle();
    long result = (long)join(start(waits_bound, NULL));
    check(NAMED("waits"), result == 0 && ended(child) == 0, "%ld", result);

    static const char *const others[] = {"counts", "counts_bound"};
    for (int i = 0; i < 2; i++) {
        make_mutex(robust, 1);
        child = run(others[i], native);
        pthread_t bound = start(counts_bound, NULL), other = start(counts_free, NULL);
        long first = (long)join(bound), second = (long)join(other);
        int third = ended(child);
        check(NAMED(others[i]), first == 0 && second == 0 && third == 0 && shared->count == 3 * ROUNDS,
              "%ld, %ld, %x, %ld of %d", first, second, third, shared->count, 3 * ROUNDS);
    }
    if (!robust)
        return;
    make_mutex(robust, 1);
    child = run("holds_bound", native);
    while (!shared->held)
        settle();
    kill(child, SIGKILL);
    result = pthread_mutex_lock(&shared->mutex);
    check(NAMED("killed"), result == EOWNERDEAD, "%ld", result);
    ended(child);
}

static void *lists(void *unused)
{
    (void)unused;
    MUST(setpriority(PRIO_PROCESS, 0, 3));
    void *head = NULL;
    size_t size = 0;
    MUST(syscall(SYS_get_robust_list, 0, &head, &size));
    errno = 0;
    long answer = syscall(SYS_set_robust_list, head, size - 1);
    check("size_of_list", answer == -1 && errno == EINVAL, "%ld, errno %d", answer, errno);
    answer = syscall(SYS_set_robust_list, head, size);
    check("list_again", answer == 0, "%ld, errno %d", answer, errno);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        map_shared();
        return peer(argv[1]);
    }
    make_memory();
    for (int kind = 0; kind < 4; kind++)
        try(kind & 1, kind >> 1);
    join(start(lists, NULL));
    return verdict();
}
