/* The signal of a timer that counts the process's processor time goes to a thread that computes, and to each of them at
 * times, not to the first thread, which waits for their end. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/utsname.h>

enum { BUSY = 4, SAMPLES = 200, PERIOD_US = 4000 };

static __thread int own;
static atomic_int counts[BUSY + 1], total;
static pthread_barrier_t all_compute;

static void handler(int signal)
{
    (void)signal;
    atomic_fetch_add(&counts[own], 1);
    atomic_fetch_add(&total, 1);
}

static void *compute(void *number)
{
    own = (int)(long)number;
    pthread_barrier_wait(&all_compute);
    while (atomic_load(&total) < SAMPLES) {
    }
    return number;
}

static void by_itimer(int which, int period)
{
    struct itimerval timer = {{0, period}, {0, period}};
    MUST(setitimer(which, &timer, NULL));
}

static void by_prof(int period) { by_itimer(ITIMER_PROF, period); }
static void by_virtual(int period) { by_itimer(ITIMER_VIRTUAL, period); }

static void by_timer(int period)
{
    static timer_t timer;
    if (period == 0) {
        MUST(timer_delete(timer));
        return;
    }
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec time = {{0, period * 1000}, {0, period * 1000}};
    MUST(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer));
    MUST(timer_settime(timer, 0, &time, NULL));
}

static void run(const char *name, void (*set)(int period), int signal)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    pthread_t threads[BUSY];
    MUST(sigaction(signal, &action, NULL));
    atomic_store(&total, 0);
    for (int i = 0; i <= BUSY; i++)
        atomic_store(&counts[i], 0);
    for (long i = 0; i < BUSY; i++)
        threads[i] = start(compute, (void *)(i + 1));
    pthread_barrier_wait(&all_compute);
    set(PERIOD_US);
    for (int i = 0; i < BUSY; i++)
        join(threads[i]);
    set(0);
    int each = 1;
    for (int i = 1; i <= BUSY; i++)
        each = each && counts[i] > 0;
    check(name, counts[0] < SAMPLES / 5 && each, "%d while it waits, %d, %d, %d, %d", counts[0], counts[1], counts[2],
          counts[3], counts[4]);
}

/* Before Linux 6.4 timer_create(2)'s went to the first thread, whatever that did. */
static int has_shares_of_timers(void)
{
    struct utsname name;
    int major = 0, minor = 0;
    MUST(uname(&name));
    sscanf(name.release, "%d.%d", &major, &minor);
    return major > 6 || (major == 6 && minor >= 4);
}

int main(void)
{
    MUST(pthread_barrier_init(&all_compute, NULL, BUSY + 1));
    run("itimer_prof", by_prof, SIGPROF);
    run("itimer_virtual", by_virtual, SIGVTALRM);
    if (has_shares_of_timers()) {
        run("timer_of_process", by_timer, SIGUSR1);
    }
    return verdict();
}
