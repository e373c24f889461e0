/* A timer that follows the processor time of a thread (timer_create(2)) comes when that thread has computed for that time, not
 * when others have, and it comes at all. */
#include "crowd.h"
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>

#define LENGTH 30000000
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
static atomic_int came;
static _Thread_local volatile sig_atomic_t came_here;
/* What the clock showed when the timer was set. */
static long long begin;

static void comes(int signal)
{
    (void)signal;
    came_here = 1;
    atomic_fetch_add(&came, 1);
}

static timer_t follow(clockid_t clock, int notify)
{
    struct sigevent event = {.sigev_notify = notify, .sigev_signo = SIGUSR2};
    struct itimerspec time = {.it_value = {0, LENGTH}};
    timer_t timer;
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    MUST(timer_create(clock, &event, &timer));
    atomic_store(&came, 0);
    begin = now(clock);
    MUST(timer_settime(timer, 0, &time, NULL));
    return timer;
}

/* Until it comes. */
static long compute(void)
{
    while (!atomic_load(&came)) {
    }
    return now(CLOCK_THREAD_CPUTIME_ID) - begin < LENGTH;
}

static void *own(void *notify)
{
    timer_t timer = follow(CLOCK_THREAD_CPUTIME_ID, (int)(long)notify);
    for (int i = 0; i < 100; i++)
        usleep(1000);
    long wrong = atomic_load(&came) != 0;
    wrong += compute();
    wrong += (long)notify == SIGEV_THREAD_ID && !came_here;
    MUST(timer_delete(timer));
    return (void *)wrong;
}

static sem_t goes;
static void *others(void *unused)
{
    (void)unused;
    while (sem_wait(&goes) != 0) {
    }
    return (void *)compute();
}

static clockid_t asked;
static atomic_int answered;

/* In a thread that libc has made for the timer. */
static void asks(union sigval unused)
{
    (void)unused;
    struct timespec used = {0}, least = {0};
    int failed = clock_gettime(asked, &used) != 0 || clock_getres(asked, &least) != 0;
    int is_nothing = used.tv_sec == 0 && used.tv_nsec == 0;
    atomic_store(&answered, failed || is_nothing || least.tv_nsec == 0 ? -1 : 1);
}

static void *computes(void *unused)
{
    /* Counted from here on at the latest. */
    now(CLOCK_THREAD_CPUTIME_ID);
    while (!atomic_load(&answered)) {
    }
    return unused;
}

static void asked_by_helper(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = asks};
    struct itimerspec time = {.it_value = {0, LENGTH}};
    timer_t timer;
    pthread_t thread = start(computes, NULL);
    MUST(pthread_getcpuclockid(thread, &asked));
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    MUST(timer_settime(timer, 0, &time, NULL));
    join(thread);
    check("asked_by_helper", atomic_load(&answered) == 1, "the clock of a thread is not there, or stands still");
    MUST(timer_delete(timer));
}

int main(void)
{
    struct sigaction action = {.sa_handler = comes};
    clockid_t clock;
    MUST(sigaction(SIGUSR2, &action, NULL));
    MUST(sem_init(&goes, 0, 0));
    begin_crowd();
    check("own_clock", join(start(own, (void *)(long)SIGEV_SIGNAL)) == NULL, "early, or for another thread");
    check("own_clock_and_thread", join(start(own, (void *)(long)SIGEV_THREAD_ID)) == NULL,
          "early, or for another thread");
    pthread_t thread = start(others, NULL);
    MUST(pthread_getcpuclockid(thread, &clock));
    timer_t timer = follow(clock, SIGEV_SIGNAL), second = follow(clock, SIGEV_SIGNAL);
    for (int i = 0; i < 100; i++)
        usleep(1000);
    long early = atomic_load(&came);
    MUST(sem_post(&goes));
    long wrong = (long)join(thread);
    check("clock_of_another", early == 0 && wrong == 0, "early %ld, wrong %ld", early, wrong);
    MUST(timer_delete(timer));
    MUST(timer_delete(second));
    end_crowd();
    asked_by_helper();
    return verdict();
}
