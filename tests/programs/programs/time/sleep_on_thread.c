/* clock_nanosleep(2) on the processor time of another thread ends when that has used so much; on one's own it is refused. */
#include "case.h"
#include <semaphore.h>
#include <stdatomic.h>

#define BEFORE 200000000
#define LENGTH 30000000

static sem_t used, goes;
static atomic_int stops;

static void *computes(void *unused)
{
    while (now(CLOCK_THREAD_CPUTIME_ID) < BEFORE) {
    }
    sem_post(&used);
    while (sem_wait(&goes) != 0) {
    }
    while (!atomic_load(&stops)) {
    }
    return unused;
}

static void *sleeps_for(void *clock)
{
    clockid_t id = *(clockid_t *)clock;
    struct timespec length = {0, LENGTH}, wrong = {0, -1};
    long long begin = now(id);
    int answer = clock_nanosleep(id, 0, &length, NULL);
    long long slept = now(id) - begin;
    check("for_a_while", answer == 0 && slept >= LENGTH, "gave %d after %lld ns", answer, slept);
    check("wrong_length", clock_nanosleep(id, 0, &wrong, NULL) == EINVAL, "not refused");
    return NULL;
}

/* A point that is over although the thread computes no more. */
static void *sleeps_not(void *clock)
{
    struct timespec time = {0, BEFORE / 2};
    int answer = clock_nanosleep(*(clockid_t *)clock, TIMER_ABSTIME, &time, NULL);
    check("point_over", answer == 0, "gave %d", answer);
    return NULL;
}

static void *sleeps_until(void *clock)
{
    clockid_t id = *(clockid_t *)clock;
    struct timespec time = ahead(id, LENGTH);
    int answer = clock_nanosleep(id, TIMER_ABSTIME, &time, NULL);
    long long late = now(id) - (time.tv_sec * 1000000000LL + time.tv_nsec);
    check("until_a_point", answer == 0 && late >= 0, "gave %d, %lld ns after it", answer, late);
    return NULL;
}

static void *refused(void *name)
{
    struct timespec time = {0, 1000};
    clockid_t own;
    MUST(pthread_getcpuclockid(pthread_self(), &own));
    int answer = clock_nanosleep(own, 0, &time, NULL);
    check(name, answer == EINVAL, "gave %d", answer);
    return NULL;
}

int main(void)
{
    clockid_t clock, first, process = CLOCK_PROCESS_CPUTIME_ID;
    MUST(sem_init(&used, 0, 0));
    MUST(sem_init(&goes, 0, 0));
    MUST(pthread_getcpuclockid(pthread_self(), &first));
    pthread_t thread = start(computes, NULL);
    MUST(pthread_getcpuclockid(thread, &clock));
    while (sem_wait(&used) != 0) {
    }
    join(start(sleeps_not, &clock));
    sem_post(&goes);
    join(start(sleeps_until, &clock));
    join(start(sleeps_for, &clock));
    join(start(sleeps_for, &process));
    refused("own_clock_of_first");
    join(start(refused, "own_clock"));
    atomic_store(&stops, 1);
    join(thread);
    /* The first thread computes until that sleeper has ended. */
    pthread_t sleeper = start(sleeps_for, &first);
    while (pthread_tryjoin_np(sleeper, NULL) != 0) {
    }
    refused("own_clock_of_bound");
    return verdict();
}
