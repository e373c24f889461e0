/* Signals of the numbers that faults and the runtime use, from another process: the one thread that accepts them gets them,
 * though others, which block them, wait in the kernel. If none accepts them they are pending until one does. */
#include "case.h"
#include <sys/wait.h>

static const int numbers[] = {SIGBUS, SIGSEGV, SIGSYS, SIGURG, SIGUSR1};
static volatile int got;

static void handler(int signal) { got = signal; }

static void *sleeper(void *unused)
{
    pause();
    return unused;
}

static void send(int signal, int at_once)
{
    pid_t own = getpid(), child = fork();
    if (child == 0) {
        if (!at_once)
            settle();
        kill(own, signal);
        _exit(0);
    }
    if (at_once)
        waitpid(child, NULL, 0);
}

static void *body(void *unused)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int signal = numbers[i];
        sigset_t set;
        sigemptyset(&set);
        sigaddset(&set, signal);
        send(signal, 0);
        int taken = sigwaitinfo(&set, NULL);
        check("waited_for", taken == signal, "%d: %d, errno %d", signal, taken, errno);

        got = 0;
        mask_signal(SIG_UNBLOCK, signal);
        send(signal, 0);
        while (!got)
            settle();
        mask_signal(SIG_BLOCK, signal);
        check("accepted", got == signal, "%d: %d", signal, got);

        got = 0;
        send(signal, 1);
        do
            sigpending(&set);
        while (!sigismember(&set, signal));
        check("not_accepted", !got, "%d: %d", signal, got);
        mask_signal(SIG_UNBLOCK, signal);
        check("accepted_later", got == signal, "%d: %d", signal, got);
        mask_signal(SIG_BLOCK, signal);
    }
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        MUST(sigaction(numbers[i], &action, NULL));
    sigset_t all;
    sigfillset(&all);
    MUST(pthread_sigmask(SIG_SETMASK, &all, NULL));
    for (int i = 0; i < 4; i++)
        start(sleeper, NULL);
    settle();
    body(NULL);
    join(start(body, NULL));
    while (wait(NULL) > 0) {
    }
    return verdict();
}
