/* The kernel takes ptrace(2) requests from the kernel thread that is the tracer alone: a thread that
 * parks and runs again between its requests is the tracer still, of a child that it has made and of
 * a process that it has seized. */
#include "crowd.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#define REQUESTS 40
static long requests(pid_t child)
{
    long failed = 0;
    for (int i = 0; i < REQUESTS; i++) {
        siginfo_t information;
        failed += ptrace(PTRACE_GETSIGINFO, child, NULL, &information) != 0;
        usleep(500);
    }
    return failed;
}

static void *trace_child(void *unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        _exit(7);
    }
    int status;
    long failed = waitpid(child, &status, 0) != child || !WIFSTOPPED(status);
    failed += requests(child);
    failed += ptrace(PTRACE_CONT, child, NULL, NULL) != 0;
    if (failed)
        kill(child, SIGKILL);
    failed += waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7;
    return (void *)failed;
}

static void *trace_seized(void *unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    int status;
    long failed = ptrace(PTRACE_SEIZE, child, NULL, NULL) != 0;
    usleep(1000);
    failed += ptrace(PTRACE_INTERRUPT, child, NULL, NULL) != 0;
    failed += waitpid(child, &status, 0) != child || !WIFSTOPPED(status);
    failed += requests(child);
    failed += ptrace(PTRACE_DETACH, child, NULL, NULL) != 0;
    kill(child, SIGKILL);
    failed += waitpid(child, &status, 0) != child || !WIFSIGNALED(status);
    return (void *)failed;
}

int main(void)
{
    begin_crowd();
    pthread_t made = start(trace_child, NULL), seized = start(trace_seized, NULL);
    long failed = (long)join(made);
    check("ptrace_threads_child", failed == 0, "%ld steps failed", failed);
    failed = (long)join(seized);
    check("ptrace_threads_seized", failed == 0, "%ld steps failed", failed);
    errno = 0;
    check("ptrace_threads_nobody", ptrace(PTRACE_CONT, getppid(), NULL, NULL) == -1 && errno == ESRCH,
          "errno %d", errno);
    end_crowd();
    return verdict();
}
