/* A program whose own memcpy and its relatives keep something for each thread. Libraries call them wherever they run. */
#include "case.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>

/* Or the loops become calls of themselves. */
#pragma GCC optimize("no-tree-loop-distribute-patterns")

static __thread unsigned long calls;
/* Calls without thread-local storage, where `calls` is somebody else's memory. */
static atomic_int strangers;

static void counted(void)
{
    /* The address of the storage is in its first word (x86-64's ABI), and glibc has it in the third, too. */
    uintptr_t first, third;
    __asm__ volatile("mov %%fs:0, %0\n\tmov %%fs:16, %1" : "=r"(first), "=r"(third));
    if (first == third)
        calls++;
    else
        atomic_fetch_add(&strangers, 1);
}

void *memcpy(void *restrict to, const void *restrict from, size_t length)
{
    counted();
    for (size_t i = 0; i < length; i++)
        ((char *)to)[i] = ((const char *)from)[i];
    return to;
}

void *memmove(void *to, const void *from, size_t length)
{
    counted();
    for (size_t i = 0; i < length; i++) {
        size_t at = (char *)to < (const char *)from ? i : length - 1 - i;
        ((char *)to)[at] = ((const char *)from)[at];
    }
    return to;
}

void *memset(void *to, int byte, size_t length)
{
    counted();
    for (size_t i = 0; i < length; i++)
        ((char *)to)[i] = (char)byte;
    return to;
}

int memcmp(const void *one, const void *other, size_t length)
{
    counted();
    for (size_t i = 0; i < length; i++) {
        int difference = ((const unsigned char *)one)[i] - ((const unsigned char *)other)[i];
        if (difference != 0)
            return difference;
    }
    return 0;
}

int bcmp(const void *one, const void *other, size_t length) { return memcmp(one, other, length); }

size_t strlen(const char *text)
{
    size_t length = 0;
    counted();
    while (text[length] != 0)
        length++;
    return length;
}

#define THREADS 4
#define ROUNDS 300

/* Sleeps, computes for longer than a moment, and waits for a pipe. */
static void *body(void *enough)
{
    /* Not what the compiler makes of a call that it knows. */
    void *(*volatile copy)(void *restrict, const void *restrict, size_t) = memcpy;
    char from[64] = "some bytes", to[64];
    for (int i = 0; i < ROUNDS; i++) {
        int ends[2];
        char byte;
        usleep(100);
        for (volatile int k = 0; k < 20000; k++) {
        }
        MUST(pipe2(ends, O_CLOEXEC));
        MUST(write(ends[1], "x", 1) != 1 || read(ends[0], &byte, 1) != 1);
        close(ends[0]);
        close(ends[1]);
        copy(to, from, sizeof from);
    }
    *(int *)enough = calls >= ROUNDS;
    return enough;
}

int main(void)
{
    pthread_t threads[THREADS];
    int enough[THREADS], all = 1;
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, body, &enough[i]));
    for (int i = 0; i < THREADS; i++) {
        MUST(pthread_join(threads[i], NULL));
        all &= enough[i];
    }
    check("each thread's calls", all, "not all were counted");
    check("storage", strangers == 0, "%d calls without a thread's storage", strangers);
    return verdict();
}
