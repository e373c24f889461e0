/* A child that asks to be traced, of a process with a thread: its tracer sees each signal that ends it once, as it passes it on. */
#include "case.h"
#include <stdatomic.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

static atomic_int over;

static void *waits(void *unused)
{
    while (!over)
        usleep(1000);
    return unused;
}

/* Counts how often the tracer sees the signal before it ends the child; 0 if something else ends it. */
static int seen(int signal)
{
    int status = 0, count = 0;
    pid_t child = fork();
    if (child == 0) {
        MUST(ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0);
        raise(SIGSTOP);
        kill(getpid(), signal);
        _exit(1);
    }
    MUST(waitpid(child, &status, 0) != child || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP);
    MUST(ptrace(PTRACE_CONT, child, NULL, NULL) != 0);
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
        count += WSTOPSIG(status) == signal;
        MUST(ptrace(PTRACE_CONT, child, NULL, (long)WSTOPSIG(status)) != 0);
    }
    return WIFSIGNALED(status) && WTERMSIG(status) == signal ? count : 0;
}

int main(void)
{
    static const int signals[] = {SIGTERM, SIGUSR1, SIGALRM, SIGABRT};
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, waits, NULL));
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        char name[32];
        int times = seen(signals[i]);
        snprintf(name, sizeof name, "signal_%d", signals[i]);
        check(name, times == 1, "seen %d times", times);
    }
    over = 1;
    MUST(pthread_join(thread, NULL));
    return verdict();
}
