/* A thread that waits with __WNOTHREAD for a child of its own, which it names, finds it, wherever it runs by then. And children
 * that say nothing of their end, or something else than SIGCHLD, are found with __WALL and __WCLONE as ever. */
#include "crowd.h"
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

static pid_t child_after(int milliseconds)
{
    pid_t child = fork();
    if (child == 0) {
        usleep(1000 * milliseconds);
        _exit(7);
    }
    return child;
}

/* Children that are not found. */
static void *waits(void *is_bound)
{
    long lost = 0;
    for (int i = 0; i < 30; i++) {
        if (i == 15 && is_bound != NULL)
            MUST(prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0));
        int status = 0, options = __WNOTHREAD | (i % 2 ? __WALL : 0);
        pid_t child = child_after(3);
        int file = (int)syscall(SYS_pidfd_open, child, 0);
        usleep(300);
        sched_yield();
        siginfo_t end = {.si_status = 7};
        int found;
        if (i % 3 == 0)
            found = waitpid(child, &status, options) == child && WEXITSTATUS(status) == 7;
        else if (i % 3 == 1 || file < 0)
            found = waitid(P_PID, (id_t)child, &end, options | WEXITED) == 0 && end.si_pid == child;
        else
            found = waitid(P_PIDFD, (id_t)file, &end, options | WEXITED) == 0 && end.si_pid == child;
        close(file);
        if (!found) {
            lost++;
            waitpid(child, NULL, __WALL);
        }
    }
    return (void *)lost;
}

static int ends(void *unused)
{
    (void)unused;
    _exit(3);
}

static void *makes_odd_children(void *unused)
{
    static char stack[65536] __attribute__((aligned(16)));
    int found = 0;
    signal(SIGUSR2, SIG_IGN);
    for (int i = 0; i < 4; i++) {
        pid_t child = clone(ends, stack + sizeof stack, i % 2 ? CLONE_VM : CLONE_VM | SIGUSR2, unused);
        settle();
        found |= (waitpid(child, NULL, 0) == -1 && errno == ECHILD) << 2 * i;
        found |= (waitpid(child, NULL, i < 2 ? __WALL : __WCLONE) == child) << (2 * i + 1);
    }
    return (void *)(long)found;
}

int main(void)
{
    begin_crowd();
    long lost = (long)waits(NULL);
    check("of_the_first_thread", lost == 0, "%ld not found", lost);
    lost = (long)join(start(waits, NULL));
    check("of_another_thread", lost == 0, "%ld not found", lost);
    lost = (long)join(start(waits, "bound"));
    check("of_a_thread_that_is_bound", lost == 0, "%ld not found", lost);
    long found = (long)join(start(makes_odd_children, NULL));
    check("by_their_kind", found == 0xff, "%lx", found);
    end_crowd();
    return verdict();
}
