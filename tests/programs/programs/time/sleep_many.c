/* Many threads sleep at once, by every clock and relative or absolute: none wakes early, and all
 * of them wake. */
#include "case.h"
#include <stdatomic.h>

static atomic_int early, woke;

static void *body(void *number)
{
    long long length = (1 + (long)number % 40) * 1000000;
    clockid_t clock = (long)number % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
    for (int i = 0; i < 3; i++) {
        long long before = now(clock);
        struct timespec relative = {0, length}, end = ahead(clock, length);
        switch ((long)number % 3) {
        case 0: nanosleep(&relative, NULL); break;
        case 1: clock_nanosleep(clock, 0, &relative, NULL); break;
        default: clock_nanosleep(clock, TIMER_ABSTIME, &end, NULL);
        }
        atomic_fetch_add(&early, now(clock) - before < length);
        atomic_fetch_add(&woke, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[300];
    for (long i = 0; i < 300; i++)
        threads[i] = start(body, (void *)i);
    for (int i = 0; i < 300; i++)
        join(threads[i]);
    check("sleep_many", early == 0 && woke == 900, "%d early, %d of 900 woke", early, woke);
    struct timespec wrong = {0, 2000000000};
    errno = 0;
    int result = nanosleep(&wrong, NULL);
    check("sleep_invalid", result == -1 && errno == EINVAL, "%d, errno %d", result, errno);
    return verdict();
}
