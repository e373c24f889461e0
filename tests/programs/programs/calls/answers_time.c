/* What calls about clocks and timers answer to right and wrong requests. */
#include "answers.h"
#include <sys/resource.h>
#include <sys/time.h>

static void ask(void)
{
    struct timespec time;
    timer_t timer;
    struct sigevent event = {.sigev_notify = 77};
    ASK(syscall(SYS_nanosleep, &negative, NULL));
    ASK(syscall(SYS_nanosleep, &too_large, NULL));
    ASK(syscall(SYS_nanosleep, NOWHERE, NULL));
    ASK(syscall(SYS_nanosleep, &none, NULL));
    ASK(syscall(SYS_nanosleep, &soon, NOWHERE));
    ASK(syscall(SYS_clock_nanosleep, 77, 0, &none, NULL));
    ASK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &negative, NULL));
    ASK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, NULL, NULL));
    ASK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &none, NULL));
    ASK(syscall(SYS_clock_nanosleep, CLOCK_REALTIME, TIMER_ABSTIME, &none, NULL));
    ASK(syscall(SYS_clock_nanosleep, CLOCK_REALTIME, 0, &soon, NULL));
    ASK(syscall(SYS_clock_nanosleep, CLOCK_TAI, 0, &soon, NULL));
    ASK(syscall(SYS_clock_nanosleep, CLOCK_BOOTTIME, 0, &soon, NULL));
    ASK(syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &none, NULL));
    ASK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 77, &none, NULL));
    ASK(syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC_COARSE, 0, &none, NULL));
    ASK(syscall(SYS_clock_gettime, 77, &time));
    ASK(syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, NOWHERE));
    ASK(syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &time));
    ASK(syscall(SYS_clock_gettime, ~12345678L * 8 | 6, &time));
    ASK(syscall(SYS_clock_gettime, ~(long)getpid() * 8 | 2, &time));
    ASK(syscall(SYS_clock_gettime, ~(long)syscall(SYS_gettid) * 8 | 6, &time));
    ASK(syscall(SYS_clock_getres, CLOCK_THREAD_CPUTIME_ID, &time));
    ASK(time.tv_sec * 1000000000 + time.tv_nsec);
    ASK(syscall(SYS_clock_getres, 77, &time));
    ASK(syscall(SYS_clock_getres, CLOCK_THREAD_CPUTIME_ID, NULL));
    ASK(syscall(SYS_clock_settime, CLOCK_THREAD_CPUTIME_ID, &none));
    ASK(syscall(SYS_timer_create, 77, NULL, &timer));
    ASK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer));
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    event._sigev_un._tid = 1;
    ASK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer));
    event._sigev_un._tid = syscall(SYS_gettid);
    event.sigev_signo = 77;
    ASK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer));
    event.sigev_signo = SIGALRM;
    ASK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, NOWHERE));
    ASK(syscall(SYS_timer_create, 77, &event, &timer));
    ASK(syscall(SYS_timer_delete, 12345));
    ASK(syscall(SYS_getitimer, 77, NOWHERE));
    ASK(syscall(SYS_getrusage, 77, NOWHERE));
    ASK(syscall(SYS_getrusage, RUSAGE_THREAD, NOWHERE));
    ASK(syscall(SYS_getrusage, RUSAGE_THREAD, &(struct rusage){.ru_maxrss = 0}));
    WORKS(syscall(SYS_time, NULL));
    ASK(syscall(SYS_time, NOWHERE));
    ASK(syscall(SYS_gettimeofday, NOWHERE, NULL));
}
