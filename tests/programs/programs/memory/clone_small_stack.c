/* Children of clone(2) on a small stack: a thread, a process that shares the memory while its parent waits (as vfork),
 * and one beside its parent. What lies below the stack belongs to somebody else. A kilobyte is enough wherever it
 * ends; the threads' stacks here are an eighth smaller, so that this fails before programs do. */
#include "case.h"
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>

enum { STACK = 1024, OF_THREAD = 896, ROUNDS = 48 };

static char memory[1 << 16] __attribute__((aligned(4096)));
static volatile int ran;

static int child(void *unused)
{
    (void)unused;
    ran = ran + 1;
    return 7;
}

static void run(const char *name, int flags, int round)
{
    static char text[64];
    /* Frames are aligned to 64 bytes, the ends of stacks to 16. */
    char *top = memory + sizeof memory - round % 4 * 16, *low = top - (flags & CLONE_THREAD ? OF_THREAD : STACK);
    volatile int living = 1;
    int status = 0, touched = 0;
    memset(memory, 0x5a, sizeof memory);
    ran = 0;
    int id = clone(child, top, flags, NULL, NULL, NULL, &living);
    if (id > 0 && flags & CLONE_THREAD) {
        while (living != 0)
            syscall(SYS_futex, &living, 0, living, NULL);
        status = 7 << 8;
    } else if (id > 0) {
        waitpid(id, &status, __WALL);
    }
    for (char *byte = memory; byte < low; byte++)
        touched += *byte != 0x5a;
    if (round == 0 || id < 0 || ran != 1 || touched != 0 || status != 7 << 8) {
        snprintf(text, sizeof text, "%s", name);
        check(text, id > 0 && ran == 1 && touched == 0 && status == 7 << 8,
              "round %d: clone gave %d (errno %d), it ran %d times, status %#x, %d bytes below its stack", round, id,
              errno, ran, status, touched);
    }
}

int main(void)
{
    /* In the first round before there are threads. */
    for (int round = 0; round < ROUNDS && case_failures == 0; round++) {
        run("beside_its_parent", CLONE_VM | SIGCHLD, round);
        run("while_its_parent_waits", CLONE_VM | CLONE_VFORK | SIGCHLD, round);
        run("thread", CLONE_VM | CLONE_THREAD | CLONE_SIGHAND | CLONE_CHILD_CLEARTID, round);
    }
    return verdict();
}
