/* What a handler is told: sender and value of queued signals in order, SIGCHLD of a child, nested
 * handlers with SA_NODEFER, and the mask of sa_mask. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int queued, out_of_order, depth, deepest, children, child_status, masked;
static volatile pid_t child_pid;

static void on_queue(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    int expected = atomic_fetch_add(&queued, 1);
    if (info->si_code != SI_QUEUE || info->si_value.sival_int != expected ||
        info->si_pid != getpid())
        atomic_fetch_add(&out_of_order, 1);
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    if (sigismember(&set, SIGUSR2) && sigismember(&set, SIGRTMIN))
        atomic_fetch_add(&masked, 1);
}

static void on_nested(int signal)
{
    int now_at = atomic_fetch_add(&depth, 1) + 1;
    if (now_at > atomic_load(&deepest))
        atomic_store(&deepest, now_at);
    if (now_at < 4)
        raise(signal);
    atomic_fetch_sub(&depth, 1);
}

static void on_child(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    if (info->si_code == CLD_EXITED) {
        child_pid = info->si_pid;
        atomic_store(&child_status, info->si_status);
        atomic_fetch_add(&children, 1);
    }
}

static void *body(void *unused)
{
    for (int i = 0; i < 20; i++) {
        pthread_sigqueue(pthread_self(), SIGRTMIN, (union sigval){.sival_int = i});
        sched_yield();
    }
    raise(SIGUSR1);
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_queue, .sa_flags = SA_SIGINFO};
    sigaddset(&action.sa_mask, SIGUSR2);
    MUST(sigaction(SIGRTMIN, &action, NULL));
    action = (struct sigaction){.sa_handler = on_nested, .sa_flags = SA_NODEFER};
    MUST(sigaction(SIGUSR1, &action, NULL));
    action = (struct sigaction){.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(SIGCHLD, &action, NULL));
    join(start(body, NULL));
    check("siginfo_queue", queued == 20 && out_of_order == 0, "%d came, %d wrong", queued,
          out_of_order);
    check("sa_mask", masked == 20, "%d of 20 with the mask", masked);
    check("sa_nodefer", deepest == 4, "%d deep", deepest);

    pid_t child = fork();
    if (child == 0)
        _exit(23);
    while (atomic_load(&children) == 0)
        usleep(1000);
    int status = 0;
    waitpid(child, &status, 0);
    check("siginfo_child", child_pid == child && child_status == 23, "pid %d of %d, status %d",
          child_pid, child, child_status);

    struct sigaction old;
    action = (struct sigaction){.sa_handler = SIG_IGN};
    MUST(sigaction(SIGRTMIN, &action, &old));
    check("sigaction_old", old.sa_sigaction == on_queue && (old.sa_flags & SA_SIGINFO) &&
          sigismember(&old.sa_mask, SIGUSR2), "flags %#x", old.sa_flags);
    return verdict();
}
