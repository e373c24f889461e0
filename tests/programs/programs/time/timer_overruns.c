/* Timers that signal one thread, which blocks the signal meanwhile: one signal of each timer waits, and counts the others. */
#include "case.h"
#include <sys/syscall.h>

static int numbers[] = {0, SIGUSR1};
static volatile int handled, overruns_in_handler;

static timer_t make(int signal, int value, long first_ns, long every_ns)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = signal};
    struct itimerspec times = {{0, every_ns}, {0, first_ns}};
    timer_t timer;
    event.sigev_value.sival_int = value;
    event._sigev_un._tid = (int)syscall(SYS_gettid);
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    MUST(timer_settime(timer, 0, &times, NULL));
    return timer;
}

/* The sum of two timers' values, each of which has expired once. */
static void two_of_a_number(int signal)
{
    sigset_t set;
    siginfo_t first, second;
    sigemptyset(&set);
    sigaddset(&set, signal);
    timer_t one = make(signal, 1, 1000000, 0), two = make(signal, 2, 1000000, 0);
    settle();
    sigwaitinfo(&set, &first);
    sigwaitinfo(&set, &second);
    int sum = first.si_value.sival_int + second.si_value.sival_int;
    check("timers_of_one_number", sum == 3, "signal %d: values add up to %d", signal, sum);
    MUST(timer_delete(one));
    MUST(timer_delete(two));
}

static void overruns(int signal)
{
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, signal);
    timer_t timer = make(signal, 7, 1000000, 1000000);
    check("overruns_before", timer_getoverrun(timer) == 0, "%d", timer_getoverrun(timer));
    for (int i = 0; i < 3; i++)
        settle();
    sigwaitinfo(&set, &info);
    int asked = timer_getoverrun(timer);
    check("overruns_counted", info.si_code == SI_TIMER && info.si_value.sival_int == 7 && info.si_overrun >= 30,
          "signal %d: code %d, value %d, %d overruns", signal, info.si_code, info.si_value.sival_int, info.si_overrun);
    check("overruns_told", asked == info.si_overrun, "signal %d: %d of %d", signal, asked, info.si_overrun);
    MUST(timer_delete(timer));
    struct timespec none = {0, 0};
    while (sigtimedwait(&set, &info, &none) > 0) {
    }
}

static void handler(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    if (!handled)
        overruns_in_handler = info->si_overrun;
    handled = 1;
}

static void *body(void *unused)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        mask_signal(SIG_BLOCK, numbers[i]);
        two_of_a_number(numbers[i]);
        overruns(numbers[i]);
        handled = 0;
        timer_t timer = make(numbers[i], 7, 1000000, 1000000);
        for (int j = 0; j < 3; j++)
            settle();
        mask_signal(SIG_UNBLOCK, numbers[i]);
        check("overruns_in_handler", handled && overruns_in_handler >= 30, "%d overruns", overruns_in_handler);
        MUST(timer_delete(timer));
    }
    return unused;
}

int main(void)
{
    numbers[0] = SIGRTMIN + 2;
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        MUST(sigaction(numbers[i], &action, NULL));
    join(start(body, NULL));
    body(NULL);
    return verdict();
}
