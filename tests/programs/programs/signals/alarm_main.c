/* An interval timer's SIGALRM interrupts main's nanosleep while other threads block it. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

static pthread_t handled_by;
static atomic_int handled, stop;

static void handler(int signal)
{
    (void)signal;
    handled_by = pthread_self();
    atomic_fetch_add(&handled, 1);
}

static void *other(void *unused)
{
    while (!atomic_load(&stop))
        usleep(1000);
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGALRM, &action, NULL));
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    MUST(pthread_sigmask(SIG_BLOCK, &set, &old));
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = start(other, NULL);
    MUST(pthread_sigmask(SIG_SETMASK, &old, NULL));
    /* It repeats, so that one which comes before the sleep does no harm. */
    struct itimerval timer = {{0, 50000}, {0, 50000}};
    MUST(setitimer(ITIMER_REAL, &timer, NULL));
    struct timespec day = {86400, 0};
    errno = 0;
    int result = nanosleep(&day, NULL);
    int error = errno;
    struct itimerval none = {0};
    MUST(setitimer(ITIMER_REAL, &none, NULL));
    check("alarm_main", result == -1 && error == EINTR && handled >= 1, "result %d, errno %d, %d",
          result, error, handled);
    check("alarm_main_thread", pthread_equal(handled_by, pthread_self()),
          "the handler ran on another thread");
    atomic_store(&stop, 1);
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    return verdict();
}
