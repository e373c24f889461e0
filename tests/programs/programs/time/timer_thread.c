/* SIGEV_THREAD timers: the function runs on threads of libc's making, again and again. */
#include "case.h"
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

static sem_t fired;
static atomic_int wrong;
static pthread_t main_thread;

static void expired(union sigval value)
{
    if (value.sival_int != 4711 || pthread_equal(pthread_self(), main_thread))
        atomic_fetch_add(&wrong, 1);
    sem_post(&fired);
}

int main(void)
{
    main_thread = pthread_self();
    MUST(sem_init(&fired, 0, 0));
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = 4711};
    event.sigev_notify_function = expired;
    struct itimerspec every = {{0, 5000000}, {0, 5000000}};
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    MUST(timer_settime(timer, 0, &every, NULL));
    for (int i = 0; i < 10; i++)
        while (sem_wait(&fired) != 0) {
        }
    MUST(timer_delete(timer));
    check("timer_thread", wrong == 0, "%d wrong expirations", wrong);
    return verdict();
}
