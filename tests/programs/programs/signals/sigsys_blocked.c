/* SIGSYS blocked while code made at run time calls the kernel: the mask is what the program set,
 * the signal waits, and the calls work. */
#include "case.h"
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static long (*page)(void);
static volatile sig_atomic_t handled, blocked_inside;
static pid_t parent;

static void handler(int signal)
{
    sigset_t now_mask;
    pthread_sigmask(SIG_BLOCK, NULL, &now_mask);
    blocked_inside = sigismember(&now_mask, SIGSYS);
    handled += signal == SIGSYS && page() == parent;
}

static void *blocked(void *when)
{
    char name[60];
#define NAMED(what) (snprintf(name, sizeof name, "%s_%s", what, (char *)when), name)
    sigset_t set, before, seen, waiting;
    handled = 0;
    sigfillset(&set);
    MUST(pthread_sigmask(SIG_SETMASK, &set, &before));
    check(NAMED("calls"), page() == parent, "another answer");
    MUST(pthread_sigmask(SIG_BLOCK, NULL, &seen));
    check(NAMED("mask"), sigismember(&seen, SIGSYS) == 1 && sigismember(&before, SIGSYS) == 0, "open");
    MUST(pthread_kill(pthread_self(), SIGSYS));
    MUST(sigpending(&waiting));
    check(NAMED("waits"), handled == 0 && sigismember(&waiting, SIGSYS) == 1, "%d", (int)handled);
    check(NAMED("calls_again"), page() == parent, "another answer");
    MUST(pthread_sigmask(SIG_SETMASK, &before, NULL));
    check(NAMED("delivered"), handled == 1 && blocked_inside == 1, "%d, %d", (int)handled,
          (int)blocked_inside);

    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    MUST(pthread_kill(pthread_self(), SIGSYS));
    siginfo_t information;
    int signal = sigwaitinfo(&set, &information);
    check(NAMED("waited_for"), signal == SIGSYS && information.si_code == SI_USER && handled == 1,
          "%d, code %d", signal, information.si_code);
    /* A call that opens it gets what has come, and what comes while it waits; one that does not, does not. */
    sigset_t open = before, all;
    sigfillset(&all);
    sigdelset(&all, SIGALRM);
    struct timespec none = {0, 1000000};
    MUST(pthread_kill(pthread_self(), SIGSYS));
    int answer = ppoll(NULL, 0, &none, &all);
    check(NAMED("held"), answer == 0 && handled == 1, "%d, %d", answer, (int)handled);
    answer = ppoll(NULL, 0, NULL, &open);
    check(NAMED("opened"), answer == -1 && errno == EINTR && handled == 2 && page() == parent, "%d, %d", answer,
          (int)handled);
    MUST(pthread_kill(pthread_self(), SIGSYS));
    answer = sigsuspend(&open);
    check(NAMED("suspended"), answer == -1 && errno == EINTR && handled == 3 && page() == parent, "%d, %d", answer,
          (int)handled);
    MUST(pthread_sigmask(SIG_BLOCK, NULL, &seen));
    check(NAMED("mask_after"), sigismember(&seen, SIGSYS) == 1, "open");
    pid_t sender = fork();
    if (sender == 0) {
        settle();
        kill(getppid(), SIGSYS);
        _exit(0);
    }
    answer = sigsuspend(&open);
    check(NAMED("sent"), answer == -1 && errno == EINTR && handled == 4 && page() == parent, "%d, %d", answer,
          (int)handled);
    MUST(waitpid(sender, NULL, 0) != sender);
    handled = 1;
    /* A child that is executed inherits the mask. */
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        if (page() != getppid())
            _exit(3);
        execl("/bin/sh", "sh", "-c", "kill -SYS $$; exit 5", NULL);
        _exit(4);
    }
    MUST(waitpid(child, &status, 0) != child);
    check(NAMED("inherited"), WIFEXITED(status) && WEXITSTATUS(status) == 5, "status %x", status);
    MUST(pthread_sigmask(SIG_SETMASK, &before, NULL));
    return NULL;
}

/* The first thread blocks the signal meanwhile: it would be given what is sent to the process. */
static void *opened_and_blocked(void *when)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    MUST(pthread_sigmask(SIG_UNBLOCK, &set, NULL));
    return blocked(when);
}

int main(void)
{
    /* mov $110,%eax; syscall; ret: getppid */
    static const unsigned char code[] = {0xb8, 110, 0, 0, 0, 0x0f, 0x05, 0xc3};
    parent = getppid();
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGSYS, &action, NULL));
    /* Blocked already when the page comes. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGSYS);
    MUST(sigprocmask(SIG_BLOCK, &set, NULL));
    raise(SIGSYS);
    void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    MUST(memory == MAP_FAILED);
    memcpy(memory, code, sizeof code);
    page = (long (*)(void))memory;
    check("blocked_before", page() == parent && handled == 0, "%d", (int)handled);
    MUST(sigprocmask(SIG_UNBLOCK, &set, NULL));
    check("pending_before", handled == 1, "%d", (int)handled);
    blocked("alone");
    MUST(sigprocmask(SIG_BLOCK, &set, NULL));
    join(start(opened_and_blocked, "thread"));
    MUST(sigprocmask(SIG_UNBLOCK, &set, NULL));
    blocked("first");
    /* By default it ends the process, blocked or not until then. */
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSYS, SIG_DFL);
        kill(getpid(), SIGSYS);
        _exit(1);
    }
    MUST(waitpid(child, &status, 0) != child);
    check("ends", WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "status %x", status);
    return verdict();
}
