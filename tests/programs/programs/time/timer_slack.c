/* The timer slack of threads: a new one has its creator's, each changes its own, and 0 goes back to
 * what it began with. A sleep is never cut short by it, wherever it is spent. */
#include "case.h"
#include <sys/prctl.h>

static pthread_barrier_t changed;

static int slack(void) { return prctl(PR_GET_TIMERSLACK); }

static void *inherits(void *creators)
{
    long began = slack();
    if (began != (long)creators)
        return "not the creator's";
    MUST(prctl(PR_SET_TIMERSLACK, 7000));
    pthread_barrier_wait(&changed);
    sched_yield();
    if (slack() != 7000)
        return "another thread's";
    MUST(prctl(PR_SET_TIMERSLACK, 0));
    return slack() == began ? NULL : "not what it began with";
}

static volatile int stop;

static void *computes(void *unused)
{
    while (!stop) {
    }
    return unused;
}

static void *sleeps(void *slack_ns)
{
    MUST(prctl(PR_SET_TIMERSLACK, (long)slack_ns));
    for (int i = 0; i < 50; i++) {
        long long before = now(CLOCK_MONOTONIC);
        usleep(1000);
        if (now(CLOCK_MONOTONIC) - before < 1000 * 1000)
            return "too short";
    }
    return NULL;
}

int main(void)
{
    int first = slack();
    pthread_barrier_init(&changed, NULL, 2);
    pthread_t thread = start(inherits, (void *)(long)first);
    MUST(prctl(PR_SET_TIMERSLACK, 9000));
    pthread_barrier_wait(&changed);
    char *wrong = join(thread);
    check("inherited", wrong == NULL, "%s", wrong);
    check("own", slack() == 9000, "%d", slack());
    MUST(prctl(PR_SET_TIMERSLACK, 0));
    check("back_to_the_first", slack() == first, "%d, first %d", slack(), first);

    pthread_t computing = start(computes, NULL);
    pthread_t sleepers[20];
    for (long i = 0; i < 20; i++)
        sleepers[i] = start(sleeps, (void *)(1 + i % 3 * 200 * 1000));
    int early = 0;
    for (int i = 0; i < 20; i++)
        early += join(sleepers[i]) != NULL;
    stop = 1;
    join(computing);
    check("no_sleep_too_short", early == 0, "of %d threads", early);
    return verdict();
}
