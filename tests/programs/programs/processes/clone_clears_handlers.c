/* The child of a clone3(2) with CLONE_CLEAR_SIGHAND has no handlers, and ignores what its parent ignores. */
#include "case.h"
#include <linux/sched.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif

static void handler(int signal) { (void)signal; }

static void *nothing(void *unused) { return unused; }

static int is(int signal, void (*handler)(int))
{
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == handler && action.sa_flags == 0 &&
           !sigismember(&action.sa_mask, SIGINT);
}

/* Returns what is wrong, in bits. */
static int child(void)
{
    int wrong = 0;
    wrong |= !is(SIGUSR1, SIG_DFL) << 0;
    wrong |= !is(SIGSEGV, SIG_DFL) << 1;
    wrong |= !is(SIGUSR2, SIG_IGN) << 2;
    wrong |= !is(SIGBUS, SIG_IGN) << 3;
    wrong |= !is(SIGTERM, SIG_DFL) << 4;
    /* The child can have handlers and threads of its own. */
    struct sigaction action = {.sa_handler = handler};
    wrong |= (sigaction(SIGUSR1, &action, NULL) != 0 || raise(SIGUSR1) != 0) << 5;
    join(start(nothing, NULL));
    return wrong;
}

static void clears(const char *name, int ends_by_signal)
{
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } arguments = {.flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
    int status = -1;
    long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == -1 && (errno == ENOSYS || errno == EINVAL)) {
        check(name, 1, "not on this kernel");
        return;
    }
    if (pid == 0) {
        if (ends_by_signal)
            raise(SIGUSR1);
        _exit(child());
    }
    MUST(waitpid((pid_t)pid, &status, 0) != pid);
    if (ends_by_signal)
        check(name, WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1, "status %x", status);
    else
        check(name, status == 0, "status %x", status);
    check("parent_keeps", !is(SIGUSR1, SIG_DFL) && !is(SIGSEGV, SIG_DFL), "the parent's handlers are gone");
}

static void *body(void *name)
{
    clears(name, 0);
    clears(name, 1);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaddset(&action.sa_mask, SIGINT);
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(sigaction(SIGSEGV, &action, NULL));
    action.sa_handler = SIG_IGN;
    MUST(sigaction(SIGUSR2, &action, NULL));
    MUST(sigaction(SIGBUS, &action, NULL));
    body("before_threads");
    join(start(body, "in_thread"));
    body("in_first_thread");
    return verdict();
}
