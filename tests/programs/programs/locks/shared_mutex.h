/* A mutex that processes share, in memory that a program finds again after execve(2). */
#include "case.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MEMORY = 50 };

static struct shared {
    pthread_mutex_t mutex;
    volatile int held, flag;
    long count;
} *shared;

static void map_shared(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, MEMORY, 0);
    MUST(shared == MAP_FAILED);
}

/* Once, by the program that makes it. */
__attribute__((unused)) static void make_memory(void)
{
    int memory = memfd_create("shared", 0);
    MUST(ftruncate(memory, 4096));
    MUST(dup2(memory, MEMORY) != MEMORY);
    close(memory);
    map_shared();
}

__attribute__((unused)) static void make_mutex(int robust, int pi)
{
    pthread_mutexattr_t attributes;
    MUST(pthread_mutexattr_init(&attributes));
    MUST(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
    if (robust)
        MUST(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
    if (pi)
        MUST(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT));
    memset(shared, 0, sizeof *shared);
    MUST(pthread_mutex_init(&shared->mutex, &attributes));
}

/* This program anew, without anything that was preloaded, in a child. */
__attribute__((unused)) static pid_t native_peer(const char *what, const char *how)
{
    pid_t child = fork();
    if (child == 0) {
        unsetenv("LD_PRELOAD");
        execl("/proc/self/exe", "peer", what, how, (char *)NULL);
        _exit(99);
    }
    return child;
}

__attribute__((unused)) static int ended(pid_t child)
{
    int status = -1;
    MUST(waitpid(child, &status, 0) != child);
    return status;
}
