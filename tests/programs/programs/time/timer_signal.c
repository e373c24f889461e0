/* POSIX timers that send a signal to the process, and one to a thread by its id. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static atomic_int fired, strangers;
static _Thread_local int target;

static void process(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    if (info->si_code == SI_TIMER && info->si_value.sival_int == 7)
        atomic_fetch_add(&fired, 1);
}

static void thread(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info, (void)context;
    if (!target)
        atomic_fetch_add(&strangers, 1);
    atomic_fetch_add(&fired, 1);
}

static void run(struct sigevent *event)
{
    timer_t timer;
    struct itimerspec every = {{0, 3000000}, {0, 3000000}};
    atomic_store(&fired, 0);
    MUST(timer_create(CLOCK_MONOTONIC, event, &timer));
    MUST(timer_settime(timer, 0, &every, NULL));
    while (atomic_load(&fired) < 10)
        usleep(1000);
    MUST(timer_delete(timer));
}

static void *targeted(void *unused)
{
    target = 1;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 1};
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    run(&event);
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = process, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(SIGRTMIN, &action, NULL));
    action.sa_sigaction = thread;
    MUST(sigaction(SIGRTMIN + 1, &action, NULL));
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    event.sigev_value.sival_int = 7;
    run(&event);
    check("timer_signal", 1, "unreachable");
    join(start(targeted, NULL));
    check("timer_thread_id", strangers == 0, "%d on other threads", strangers);
    return verdict();
}
