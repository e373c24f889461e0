/* A child of fork(2) sends signals to single threads of its parent, by the ids that they have told: to one that computes, to
 * one that waits, to ones with nice values of their own; queued ones, too, which say what they said. A helper of libc's is there. A second
 * child does it while the first thread does not take what libc keeps for itself. */
#include "case.h"
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum { NR_THREADS = 6, NR_QUEUED = 50, NR_CHILDREN = 2 };

struct own {
    _Atomic pid_t id;
    _Atomic int plain, queued, sum, wrong;
};

static struct own all[NR_THREADS];
static _Thread_local struct own *own;
static _Atomic int done;
static _Atomic pid_t sender;

static void handler(int signal, siginfo_t *info, void *unused)
{
    (void)unused;
    if (own == NULL || info->si_pid != sender || info->si_uid != getuid()) {
        all[0].wrong++;
    } else if (signal == SIGUSR1) {
        own->wrong += info->si_code != SI_TKILL || info->si_signo != SIGUSR1;
        own->plain++;
    } else {
        own->wrong += info->si_code != SI_QUEUE;
        own->queued++;
        own->sum += info->si_value.sival_int;
    }
}

static void begin(struct own *which)
{
    own = which;
    if (own == &all[1] || own == &all[3])
        MUST(setpriority(PRIO_PROCESS, gettid(), 1));
    own->id = gettid();
}

static void *computes(void *argument)
{
    begin(argument);
    while (!done)
        ;
    return NULL;
}

static void *waits(void *argument)
{
    begin(argument);
    while (!done)
        usleep(1000);
    return NULL;
}

/* Nobody's signal interrupts it. */
static void *undisturbed(void *unused)
{
    (void)unused;
    return (void *)(long)poll(NULL, 0, 300);
}

static void child(void)
{
    pid_t parent = getppid();
    int wrong = 0;
    siginfo_t info = {.si_code = SI_QUEUE, .si_pid = getpid(), .si_uid = getuid()};
    for (int i = 0; i < NR_THREADS; i++) {
        wrong += syscall(SYS_tgkill, parent, all[i].id, 0) != 0;
        wrong += syscall(SYS_tgkill, parent, all[i].id, SIGUSR1) != 0;
    }
    for (int n = 1; n <= NR_QUEUED; n++)
        for (int i = 0; i < NR_THREADS; i++) {
            info.si_value.sival_int = n;
            wrong += syscall(SYS_rt_tgsigqueueinfo, parent, all[i].id, SIGRTMIN, &info) != 0;
        }
    wrong += syscall(SYS_tgkill, parent, all[0].id, 65) != -1 || errno != EINVAL;
    info.si_code = SI_USER;
    wrong += syscall(SYS_rt_tgsigqueueinfo, parent, all[0].id, SIGRTMIN, &info) != -1 || errno != EPERM;
    wrong += syscall(SYS_tgkill, 1 << 21, all[0].id, SIGUSR1) != -1 || errno != ESRCH;
    wrong += syscall(SYS_tgkill, getpid(), all[0].id, SIGUSR1) != -1 || errno != ESRCH;
    _exit(wrong);
}

static void expires(union sigval unused)
{
    (void)unused;
}

static void send_from_child(int number)
{
    int go[2], status = -1;
    MUST(pipe(go));
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        if (read(go[0], &byte, 1) == 1)
            child();
        _exit(99);
    }
    sender = pid;
    MUST(write(go[1], "", 1) == 1 ? 0 : -1);
    while (waitpid(pid, &status, 0) == -1 && errno == EINTR)
        ;
    check("sent", status == 0, "%#x", status);
    for (int i = 0; i < NR_THREADS; i++)
        while (all[i].plain < number || all[i].queued < number * NR_QUEUED)
            sched_yield();
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(sigaction(SIGRTMIN, &action, NULL));
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = expires};
    timer_t timer;
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    pthread_t threads[NR_THREADS], poller;
    for (int i = 0; i < NR_THREADS; i++)
        threads[i] = start(i % 3 == 0 ? computes : waits, &all[i]);
    for (int i = 0; i < NR_THREADS; i++)
        while (all[i].id == 0)
            sched_yield();
    poller = start(undisturbed, NULL);
    send_from_child(1);
    unsigned long libcs = 1UL << 32;
    MUST(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &libcs, NULL, sizeof libcs));
    send_from_child(2);
    check("no_call_of_others_was_interrupted", join(poller) == NULL, "poll");
    done = 1;
    for (int i = 0; i < NR_THREADS; i++) {
        struct own *it = &all[i];
        int sum = NR_CHILDREN * NR_QUEUED * (NR_QUEUED + 1) / 2;
        join(threads[i]);
        check("each_came_once", it->plain == NR_CHILDREN && it->queued == NR_CHILDREN * NR_QUEUED, "%d, %d", it->plain, it->queued);
        check("as_it_was_sent", it->wrong == 0 && it->sum == sum, "%d, %d", it->wrong, it->sum);
    }
    return verdict();
}
