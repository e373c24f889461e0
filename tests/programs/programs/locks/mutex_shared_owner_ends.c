/* A robust mutex that processes share, whose owner ends in one of many ways: those who wait are told. */
#include "shared_mutex.h"

static const char *const ways[] = {"kill", "abort", "exit", "exec", "return", "thread", "cancel"};
enum { WAYS = sizeof ways / sizeof *ways, WAITERS = 2 };

static void *holds(void *unused)
{
    MUST(pthread_mutex_lock(&shared->mutex));
    shared->held = 1;
    while (!shared->flag)
        settle();
    return unused;
}

static void *holds_for_ever(void *unused)
{
    unused = holds(unused);
    for (;;)
        pause();
    return unused;
}

static void *ends_process(void *way)
{
    /* Others live on until it is seen that they are told. */
    while (shared->flag != 2)
        settle();
    _exit(way != NULL);
}

/* Ends while the first thread, or another one, holds the mutex. */
static int holding_process(const char *way, int first)
{
    int thread_ends = strcmp(way, "thread") == 0, cancels = strcmp(way, "cancel") == 0;
    if (thread_ends || cancels)
        start(ends_process, NULL);
    if (first && thread_ends) {
        holds(NULL);
        pthread_exit(NULL);
    }
    pthread_t owner = pthread_self();
    if (first)
        holds(NULL);
    else
        owner = start(thread_ends ? holds : holds_for_ever, NULL);
    while (!shared->held || !shared->flag)
        settle();
    if (cancels)
        pthread_cancel(owner);
    if (cancels || thread_ends)
        for (;;)
            pause();
    if (strcmp(way, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(way, "abort") == 0)
        abort();
    if (strcmp(way, "exec") == 0)
        execl("/bin/true", "true", (char *)NULL);
    if (strcmp(way, "exit") == 0)
        _exit(3);
    return 4;
}

static void *waits(void *unused)
{
    (void)unused;
    long result = pthread_mutex_lock(&shared->mutex);
    if (result == EOWNERDEAD)
        MUST(pthread_mutex_consistent(&shared->mutex));
    if (result == 0 || result == EOWNERDEAD)
        MUST(pthread_mutex_unlock(&shared->mutex));
    return (void *)result;
}

static void try(const char *name, const char *way, int first, int pi, int native)
{
    make_mutex(1, pi);
    pid_t holder = native ? native_peer(way, first ? "first" : "other") : fork();
    if (holder == 0)
        exit(holding_process(way, first));
    while (!shared->held)
        settle();
    pthread_t waiters[WAITERS];
    for (int i = 0; i < WAITERS; i++)
        waiters[i] = start(waits, NULL);
    settle();
    shared->flag = 1;
    int told = 0, got = 0;
    for (int i = 0; i <= WAITERS; i++) {
        long result = (long)(i == 0 ? waits(NULL) : join(waiters[i - 1]));
        told += result == EOWNERDEAD;
        got += result == 0;
    }
    shared->flag = 2;
    ended(holder);
    check(name, told == 1 && got == WAITERS, "%d were told, %d got it", told, got);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        map_shared();
        return holding_process(argv[1], argv[2][0] == 'f');
    }
    make_memory();
    for (int way = 0; way < WAYS; way++)
        for (int kind = 0; kind < 8; kind++) {
            int first = kind & 1, pi = kind & 2, native = kind & 4;
            /* The first thread ends by pthread_exit(3) only. */
            if (first && strcmp(ways[way], "cancel") == 0)
                continue;
            char name[64];
            snprintf(name, sizeof name, "%s_%s%s_%s", ways[way], first ? "first" : "other", pi ? "_pi" : "",
                     native ? "native" : "served");
            try(name, ways[way], first, pi, native);
        }
    return verdict();
}
