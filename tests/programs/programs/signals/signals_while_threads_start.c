/* Signals for the process come while its threads begin and end, where libc blocks all signals for some instructions. None is
 * lost or comes twice, no handler runs inside those instructions, and no child inherits what libc blocks there. */
#include "case.h"
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SIGNALS = 3000, MAKERS = 2, CHILDREN = 10, SIGCANCEL_OF_LIBC = 32 };

extern char **environ;

static atomic_uchar seen[SIGNALS];
static atomic_int got, twice, inside, over;

static void note(int value)
{
    if (value < 0 || value >= SIGNALS || atomic_exchange(&seen[value], 1) != 0) {
        atomic_fetch_add(&twice, 1);
    }
    atomic_fetch_add(&got, 1);
}

/* The mask of what was interrupted has the signals that only libc blocks if that was inside of libc's instructions. */
static void look(const ucontext_t *context)
{
    unsigned long mask;
    memcpy(&mask, &context->uc_sigmask, sizeof mask);
    if (mask & 1UL << (SIGCANCEL_OF_LIBC - 1)) {
        atomic_fetch_add(&inside, 1);
    }
}

static void on_queued(int signal, siginfo_t *information, void *context)
{
    (void)signal;
    look(context);
    note(information->si_value.sival_int);
}

static void on_noise(int signal, siginfo_t *information, void *context)
{
    (void)signal, (void)information;
    look(context);
}

static void *nothing(void *argument) { return argument; }

static void *makes_threads(void *unused)
{
    while (!atomic_load(&over)) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) {
            threads[i] = start(nothing, NULL);
        }
        for (int i = 0; i < 4; i++) {
            join(threads[i]);
        }
    }
    return unused;
}

/* A child that sends every value once, with a signal that says nothing in between. */
static pid_t sends(int signal)
{
    pid_t parent = getpid(), child = fork();
    if (child != 0) {
        return child;
    }
    for (int value = 0; value < SIGNALS; value++) {
        while (sigqueue(parent, signal, (union sigval){value}) != 0) {
            if (errno != EAGAIN) {
                _exit(1);
            }
            sched_yield();
        }
        if (value % 8 == 0) {
            kill(parent, SIGUSR1);
            sched_yield();
        }
    }
    _exit(0);
}

/* What a child inherits: 1 if it is more than `expected`. */
static int inherits_more(unsigned long expected)
{
    pid_t child = fork();
    if (child == 0) {
        unsigned long mask;
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8);
        _exit(mask != expected);
    }
    int status;
    while (waitpid(child, &status, 0) != child) {
    }
    char line[64];
    snprintf(line, sizeof line, "^SigBlk:.%016lx$", expected);
    char *words[] = {"grep", "-q", line, "/proc/self/status", NULL};
    MUST(posix_spawnp(&child, words[0], NULL, NULL, words, environ));
    int spawned;
    while (waitpid(child, &spawned, 0) != child) {
    }
    return status != 0 || spawned != 0;
}

static void ended(const char *name, pid_t sender, unsigned long mask)
{
    int more = 0;
    for (int i = 0; i < CHILDREN; i++) {
        more += inherits_more(mask);
    }
    int status = 0;
    while (waitpid(sender, &status, 0) != sender) {
    }
    long long limit = now(CLOCK_MONOTONIC) + 20000000000;
    while (atomic_load(&got) < SIGNALS && now(CLOCK_MONOTONIC) < limit) {
        sched_yield();
    }
    check(name, status == 0 && got == SIGNALS && twice == 0, "sender %d, %d of %d, %d twice", status, got,
          SIGNALS, twice);
    check("no child inherits more", more == 0, "%d of %d", more, CHILDREN);
}

static void forget(void)
{
    for (int i = 0; i < SIGNALS; i++) {
        atomic_store(&seen[i], 0);
    }
    atomic_store(&got, 0);
    atomic_store(&twice, 0);
}

static int waited_for;

static void *waits(void *unused)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, waited_for);
    while (atomic_load(&got) < SIGNALS) {
        siginfo_t information;
        if (sigwaitinfo(&set, &information) == waited_for) {
            note(information.si_value.sival_int);
        }
    }
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(SIGRTMIN, &action, NULL));
    action.sa_sigaction = on_noise;
    MUST(sigaction(SIGUSR1, &action, NULL));

    pthread_t makers[MAKERS];
    for (int i = 0; i < MAKERS; i++) {
        makers[i] = start(makes_threads, NULL);
    }
    ended("a handler gets each", sends(SIGRTMIN), 0);
    atomic_store(&over, 1);
    for (int i = 0; i < MAKERS; i++) {
        join(makers[i]);
    }

    /* All threads block the signal, and one waits for it. */
    forget();
    atomic_store(&over, 0);
    waited_for = SIGRTMIN + 1;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, waited_for);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    for (int i = 0; i < MAKERS; i++) {
        makers[i] = start(makes_threads, NULL);
    }
    pthread_t waiter = start(waits, NULL);
    ended("one that waits gets each", sends(waited_for), 1UL << (waited_for - 1));
    join(waiter);
    atomic_store(&over, 1);
    for (int i = 0; i < MAKERS; i++) {
        join(makers[i]);
    }

    check("no handler inside", inside == 0, "%d handlers", inside);
    return verdict();
}
