/* A signal that a thread sends to its own process and accepts comes before the call returns, beside threads that accept
 * it too and wait; with what it says, and to the thread that the kernel prefers. */
#include "case.h"
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROUNDS = 2000, IDLE = 3 };

static volatile int got;
static volatile pthread_t by;
static siginfo_t information;
static int directory, descriptor;

static void handle(int signal, siginfo_t *what, void *context)
{
    (void)signal, (void)context;
    information = *what;
    by = pthread_self();
    got++;
}

static int by_kill(int signal) { return kill(getpid(), signal); }
static int by_group(int signal) { return kill(0, signal); }
static int by_group_number(int signal) { return kill(-getpgrp(), signal); }
static int by_directory(int signal) { return (int)syscall(SYS_pidfd_send_signal, directory, signal, NULL, 0); }
static int by_descriptor(int signal) { return (int)syscall(SYS_pidfd_send_signal, descriptor, signal, NULL, 0); }
static int by_sigqueue(int signal)
{
    union sigval value = {.sival_int = 4711};
    return sigqueue(getpid(), signal, value);
}
static int by_raise(int signal) { return raise(signal); }
static int by_tgkill(int signal) { return (int)syscall(SYS_tgkill, getpid(), gettid(), signal); }
static int by_tkill(int signal) { return (int)syscall(SYS_tkill, gettid(), signal); }
static int by_tgsigqueue(int signal)
{
    siginfo_t what = {.si_code = SI_QUEUE};
    return (int)syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, &what);
}

static const struct {
    const char *name;
    int (*send)(int);
    int code, to_group, to_thread;
} ways[] = {
    {"kill", by_kill, SI_USER, 0, 0},
    {"group", by_group, SI_USER, 1, 0},
    {"group_number", by_group_number, SI_USER, 1, 0},
    {"directory", by_directory, SI_USER, 0, 0},
    {"descriptor", by_descriptor, SI_USER, 0, 0},
    {"sigqueue", by_sigqueue, SI_QUEUE, 0, 0},
    {"raise", by_raise, SI_TKILL, 0, 1},
    {"tgkill", by_tgkill, SI_TKILL, 0, 1},
    {"tkill", by_tkill, SI_TKILL, 0, 1},
    {"tgsigqueue", by_tgsigqueue, SI_QUEUE, 0, 1},
};
enum { WAYS = sizeof ways / sizeof *ways };

static void *idle(void *unused)
{
    for (;;) {
        pause();
    }
    return unused;
}

static void one(const char *where, int way, int signal, int others_accept)
{
    char name[80];
    int missed = 0, failed = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int before = got;
        failed += ways[way].send(signal) != 0;
        missed += got == before;
        while (got == before) {
        }
    }
    snprintf(name, sizeof name, "%s_%s", ways[way].name, where);
    int says = information.si_signo == signal && information.si_code == ways[way].code &&
               (ways[way].code == SI_QUEUE && ways[way].to_thread ? 1 : information.si_pid == getpid()) &&
               information.si_uid == getuid() && (way != 5 || information.si_value.sival_int == 4711);
    /* One that goes to a group may have come to another thread that accepts it. */
    int here = missed == 0 && pthread_equal(by, pthread_self());
    check(name, failed == 0 && (here || (ways[way].to_group && others_accept)) && says, "%d failed, %d missed, code %d", failed, missed,
          information.si_code);
}

/* The first thread blocks it. */
static void *other(void *unused)
{
    mask_signal(SIG_UNBLOCK, SIGUSR2);
    for (int i = 0; i < WAYS; i++) {
        one("other", i, SIGUSR2, 0);
    }
    siginfo_t what = {.si_code = SI_USER};
    long answer = syscall(SYS_rt_sigqueueinfo, getpid(), SIGUSR2, &what);
    check("not_privileged", answer == -1 && errno == EPERM, "%ld, errno %d", answer, errno);
    mask_signal(SIG_BLOCK, SIGUSR2);
    return unused;
}

/* All block it. */
static void *waits_for_it(void *unused)
{
    (void)unused;
    sigset_t set;
    siginfo_t what;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return (void *)(long)(sigwaitinfo(&set, &what) == SIGUSR2 && what.si_code == SI_QUEUE && what.si_value.sival_int == 4711);
}

static void *sends_to_first(void *unused)
{
    by = pthread_self();
    int before = got;
    MUST(kill(getpid(), SIGINT));
    while (got == before) {
        sched_yield();
    }
    return unused;
}

static void *ends(void *unused)
{
    (void)unused;
    kill(getpid(), SIGTERM);
    _exit(3); /* Not reached by the thread that would get it. */
}

static void *unblocks_and_ends(void *unused)
{
    mask_signal(SIG_UNBLOCK, SIGTERM);
    return ends(unused);
}

int main(void)
{
    char path[64];
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    MUST(setpgid(0, 0));
    MUST(sigaction(SIGINT, &action, NULL));
    MUST(sigaction(SIGUSR2, &action, NULL));
    snprintf(path, sizeof path, "/proc/%d", getpid());
    directory = open(path, O_DIRECTORY);
    descriptor = (int)syscall(SYS_pidfd_open, getpid(), 0);
    for (int i = 0; i < WAYS; i++) {
        one("alone", i, SIGINT, 0);
    }
    mask_signal(SIG_BLOCK, SIGUSR2);
    for (int i = 0; i < IDLE; i++) {
        start(idle, NULL);
    }
    settle();
    for (int i = 0; i < WAYS; i++) {
        one("beside", i, SIGINT, 1);
    }
    mask_signal(SIG_UNBLOCK, SIGUSR2);
    for (int i = 0; i < WAYS; i++) {
        one("first", i, SIGUSR2, 0);
    }
    mask_signal(SIG_BLOCK, SIGUSR2);
    int before = got;
    pthread_t thread = start(sends_to_first, NULL);
    join(thread);
    check("once", got == before + 1, "%d", got - before);
    join(start(other, NULL));

    before = got;
    MUST(by_sigqueue(SIGUSR2));
    sigset_t set;
    do {
        MUST(sigpending(&set));
    } while (got == before && sigismember(&set, SIGUSR2) != 1);
    check("stays", got == before, "%d", got - before);
    check("waited_for", join(start(waits_for_it, NULL)) == (void *)1, "another");
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    int file = signalfd(-1, &set, 0);
    struct signalfd_siginfo found = {0};
    MUST(by_kill(SIGUSR2));
    long length = read(file, &found, sizeof found);
    check("by_signalfd", length == sizeof found && found.ssi_signo == SIGUSR2 && found.ssi_pid == (unsigned)getpid(),
          "%ld, signal %u", length, found.ssi_signo);
    check("nothing", kill(getpid(), 0) == 0 && kill(getpid(), 65) == -1 && errno == EINVAL, "errno %d", errno);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        mask_signal(SIG_BLOCK, SIGTERM);
        start(unblocks_and_ends, NULL);
        idle(NULL);
    }
    int status = 0;
    MUST(waitpid(child, &status, 0) != child);
    check("default", WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "%#x", (unsigned)status);
    child = fork();
    if (child == 0) {
        start(idle, NULL);
        ends(NULL);
    }
    MUST(waitpid(child, &status, 0) != child);
    check("default_at_once", WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM, "%#x", (unsigned)status);
    return verdict();
}
