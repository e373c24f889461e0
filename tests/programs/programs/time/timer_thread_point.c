/* A timer until a point in the processor time of a thread (TIMER_ABSTIME) comes then, whatever that thread had used before. */
#include "case.h"
#include <semaphore.h>

#define BEFORE 200000000
#define AHEAD 30000000
/* Only so that the program ends: a machine that is itself one of many can be late. What is left tells of other delays. */
#define LATEST 5000000000LL

static sem_t used;
static volatile sig_atomic_t is_set, came;
static timer_t timer;
static long long point;

static void comes(int signal)
{
    (void)signal;
    came = 1;
}

static void use(void)
{
    while (now(CLOCK_THREAD_CPUTIME_ID) < BEFORE) {
    }
}

static void set(const char *name, clockid_t clock)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    struct itimerspec time = {{0, 0}, {0, 0}}, left;
    MUST(timer_create(clock, &event, &timer));
    came = 0;
    time.it_value = ahead(clock, AHEAD);
    point = time.it_value.tv_sec * 1000000000LL + time.it_value.tv_nsec;
    MUST(timer_settime(timer, TIMER_ABSTIME, &time, NULL));
    MUST(timer_gettime(timer, &left));
    check(name, left.it_value.tv_sec == 0 && left.it_value.tv_nsec <= AHEAD, "%ld ns are left", left.it_value.tv_nsec);
}

/* Until it comes. The thread that computes is the only one that accepts the signal. */
static void compute(const char *name)
{
    mask_signal(SIG_UNBLOCK, SIGUSR1);
    long long at;
    do {
        at = now(CLOCK_THREAD_CPUTIME_ID);
    } while (!came && at < point + LATEST);
    mask_signal(SIG_BLOCK, SIGUSR1);
    check(name, came && at >= point, "came %d, %lld ns after its point", (int)came, at - point);
    MUST(timer_delete(timer));
}

static void *other(void *unused)
{
    use();
    sem_post(&used);
    while (!is_set) {
    }
    compute("clock_of_another");
    return unused;
}

static void *own(void *unused)
{
    use();
    set("left_of_own", CLOCK_THREAD_CPUTIME_ID);
    compute("own_clock");
    /* It is bound by now. */
    clockid_t clock;
    MUST(pthread_getcpuclockid(pthread_self(), &clock));
    set("left_of_own_again", clock);
    compute("own_clock_again");
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = comes};
    clockid_t clock;
    MUST(sem_init(&used, 0, 0));
    MUST(sigaction(SIGUSR1, &action, NULL));
    mask_signal(SIG_BLOCK, SIGUSR1);
    pthread_t thread = start(other, NULL);
    MUST(pthread_getcpuclockid(thread, &clock));
    while (sem_wait(&used) != 0) {
    }
    set("left_of_another", clock);
    is_set = 1;
    join(thread);
    join(start(own, NULL));
    return verdict();
}
