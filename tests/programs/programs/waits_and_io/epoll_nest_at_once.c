/* Threads that nest epoll instances at the same time, while others wait for each: each comes as deep as
 * alone. The numbers are high, so that a runtime that looks through all descriptors for what stands in the way
 * is not done when the next one asks. */
#include "case.h"
#include "poll_parks.h"
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

enum { NESTERS = 6, DEPTH = 5 };

static int chains[NESTERS][DEPTH], depths[NESTERS];
static atomic_int waiting, begun;

static void *wait_for(void *instance)
{
    struct epoll_event event;
    parks();
    atomic_fetch_add(&waiting, 1);
    return (void *)(long)epoll_wait((int)(long)instance, &event, 1, -1);
}

/* Nests one deeper. */
static void nest(long number)
{
    int *chain = chains[number], *depth = &depths[number];
    struct epoll_event event = {EPOLLIN, {0}};
    if (epoll_ctl(chain[*depth], EPOLL_CTL_ADD, chain[*depth + 1], &event) == 0)
        ++*depth;
}

static void *nests(void *number)
{
    atomic_fetch_add(&begun, 1);
    while (atomic_load(&begun) < NESTERS)
        sched_yield();
    nest((long)number);
    return NULL;
}

/* A new epoll instance with about this number, if so high a one may be had. */
static int instance(int number, int limit)
{
    int low = epoll_create1(0), high = number < limit ? dup2(low, number) : -1;
    MUST(low < 0);
    if (high < 0)
        return low;
    close(low);
    return high;
}

int main(void)
{
    pthread_t nesters[NESTERS], waiters[NESTERS];
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = limit.rlim_max < 65000 ? limit.rlim_max : 65000;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    parks_begin();
    for (int i = 0; i < NESTERS; i++) {
        for (int at = 0; at < DEPTH; at++)
            chains[i][at] = instance((int)limit.rlim_cur - 200 + i * DEPTH + at, (int)limit.rlim_cur);
        waiters[i] = start(wait_for, (void *)(long)chains[i][0]);
    }
    while (atomic_load(&waiting) < NESTERS)
        sched_yield();
    settle();
    /* With the watch of who waits there is room for all but the last. */
    for (long i = 0; i < NESTERS; i++)
        for (int at = 0; at + 2 < DEPTH; at++)
            nest(i);
    for (long i = 0; i < NESTERS; i++)
        nesters[i] = start(nests, (void *)i);
    int file = eventfd(1, 0), ready = 0;
    for (int i = 0; i < NESTERS; i++) {
        struct epoll_event event = {EPOLLIN, {0}};
        join(nesters[i]);
        check("nested", depths[i] == DEPTH - 1, "%d", depths[i]);
        MUST(epoll_ctl(chains[i][depths[i]], EPOLL_CTL_ADD, file, &event));
        ready += (long)join(waiters[i]) == 1;
    }
    check("woken", ready == NESTERS, "%d", ready);
    return verdict();
}
