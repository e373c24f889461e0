/* Under `--policy=deadline`, on one virtual processor: SCHED_DEADLINE decides who runs first. */
#include "runners.h"
#include <sched.h>
#include <stdint.h>

enum { DEADLINE = 6, THREADS = 4 };
#define MS 1000000ull
#define S (1000 * MS)

/* As sched_setattr(2) has it; newer C libraries have their own. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

/* None, where it is 0. */
static const uint64_t deadlines[THREADS] = {300 * S, 100 * S, 0, 200 * S};
/* The place of each thread in the order in which they must run, from 1 on. */
static const int places[THREADS] = {3, 1, 4, 2};
static atomic_int released;

static int set(int id, uint64_t runtime, uint64_t deadline, uint64_t period)
{
    struct attributes wanted = {
        .size = sizeof wanted, .policy = DEADLINE, .runtime = runtime, .deadline = deadline, .period = period};
    return syscall(SYS_sched_setattr, id, &wanted, 0) == 0 ? 0 : errno;
}

static void *begins_without(void *unused)
{
    (void)unused;
    return (void *)(long)(sched_getscheduler(0) == SCHED_OTHER);
}

static void *releases(void *unused)
{
    (void)unused;
    MUST(set(0, 1 * S, 150 * S, 0));
    while (atomic_load(&released) == 0)
        usleep(100);
    atomic_store(&released, 2);
    return NULL;
}

/* It has said that it takes 2 ms, and takes what it gets. */
static void *takes_too_long(void *unused)
{
    (void)unused;
    MUST(set(0, 2 * MS, 100 * S, 0));
    atomic_store(&released, 1);
    while (atomic_load(&released) != 2) {
    }
    return NULL;
}

static void *sleeps(void *unused)
{
    struct timespec time = {0, 220 * MS};
    (void)unused;
    MUST(set(0, 100 * MS, 200 * MS, 0));
    atomic_store(&released, 1);
    nanosleep(&time, NULL);
    atomic_store(&released, 2);
    return NULL;
}

int main(void)
{
    pthread_t other;
    struct attributes has;
    void *without;
    check("sets_before_there_are_threads", set(0, 20 * S, 50 * S, 60 * S) == 0, "errno %d", errno);
    MUST(syscall(SYS_sched_getattr, 0, &has, sizeof has, 0));
    check("says",
          sched_getscheduler(0) == DEADLINE && has.size == sizeof has && has.policy == DEADLINE &&
              has.runtime == 20 * S && has.deadline == 50 * S && has.period == 60 * S,
          "policy %d, size %u, policy %u, runtime %llu, deadline %llu, period %llu", sched_getscheduler(0),
          has.size, has.policy, (unsigned long long)has.runtime, (unsigned long long)has.deadline,
          (unsigned long long)has.period);
    struct sched_param real_time = {10};
    check("refuses",
          set(0, 0, 50 * S, 60 * S) == EINVAL && set(0, 51 * S, 50 * S, 60 * S) == EINVAL &&
              set(0, 1 * S, 50 * S, 49 * S) == EINVAL && sched_setscheduler(0, SCHED_RR, &real_time) != 0,
          "what cannot be");
    check("keeps_what_it_had_when_another_is_refused", sched_getscheduler(0) == DEADLINE, "policy %d",
          sched_getscheduler(0));
    MUST(pthread_join(start(begins_without, NULL), &without));
    check("a_new_thread_has_no_deadline", without != NULL, "another policy");

    MUST(set(0, 20 * S, 50 * S, 60 * S));
    begin_runners(THREADS);
    for (int i = 0; i < THREADS; i++) {
        int id = id_of_runner(i);
        if (deadlines[i] != 0)
            MUST(set(id, 1 * S, deadlines[i], 0));
    }
    let_run(THREADS, places);

    long long began = now(CLOCK_MONOTONIC);
    MUST(set(0, 1 * MS, 10 * MS, 20 * MS));
    for (int i = 0; i < 3; i++)
        MUST(sched_yield());
    long long took = now(CLOCK_MONOTONIC) - began;
    check("a_job_that_is_done_waits_for_the_next_period", took >= 60 * (long long)MS, "%lld ns", took);

    /* Longer ahead than both: it only looks on. */
    MUST(set(0, 1 * S, 250 * S, 0));
    other = start(releases, NULL);
    settle();
    join(start(takes_too_long, NULL));
    join(other);
    check("one_that_takes_too_long_takes_nothing_from_others", atomic_load(&released) == 2, "%d",
          atomic_load(&released));

    atomic_store(&released, 0);
    began = now(CLOCK_MONOTONIC);
    MUST(set(0, 290 * MS, 300 * MS, 0));
    other = start(sleeps, NULL);
    while (atomic_load(&released) != 1)
        usleep(100);
    /* Its next job is due after this one, which goes on beyond when it wakes. */
    while (now(CLOCK_MONOTONIC) - began < 260 * (long long)MS) {
    }
    check("who_sleeps_into_its_next_job_is_as_urgent_as_that", atomic_load(&released) == 1, "it ran");
    join(other);

    struct sched_param none = {0};
    MUST(sched_setscheduler(0, SCHED_OTHER, &none));
    check("gives_it_back", sched_getscheduler(0) == SCHED_OTHER, "policy %d", sched_getscheduler(0));
    return verdict();
}
