/* Threads that share epoll instances: edge-triggered, one-shot and exclusive registrations, and the
 * kernel's limits on how instances nest, which watches of somebody else's must not lower. */
#include "case.h"
#include "poll_parks.h"
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { THREADS = 8, EVENTS = 2000, FILES = 4, DEPTH = 8, MANY = 700 };

static int instances[THREADS], files[FILES];
static atomic_int taken, wrong, waiting;
static uint32_t flags;

/* Takes what there is until it is told to stop, by a value above EVENTS. */
static void *body(void *argument)
{
    int instance = instances[(long)argument];
    parks();
    for (;;) {
        struct epoll_event event;
        atomic_fetch_add(&waiting, 1);
        int count = (int)UNSTOPPED(epoll_wait(instance, &event, 1, -1));
        if (count != 1) {
            atomic_fetch_add(&wrong, 1);
            continue;
        }
        eventfd_t value;
        int file = files[event.data.u32];
        if (eventfd_read(file, &value) != 0)
            continue;
        if (value > EVENTS) {
            eventfd_write(file, value);
            if (flags & EPOLLONESHOT)
                epoll_ctl(instance, EPOLL_CTL_MOD, file, &(struct epoll_event){flags, event.data});
            return NULL;
        }
        atomic_fetch_add(&taken, (int)value);
        if (flags & EPOLLONESHOT)
            epoll_ctl(instance, EPOLL_CTL_MOD, file, &(struct epoll_event){flags, event.data});
    }
}

static void share(const char *name, uint32_t with, int nr_instances)
{
    pthread_t threads[THREADS];
    flags = EPOLLIN | with;
    atomic_store(&taken, 0);
    atomic_store(&wrong, 0);
    for (int i = 0; i < FILES; i++)
        files[i] = eventfd(0, EFD_NONBLOCK);
    for (int i = 0; i < THREADS; i++) {
        if (i >= nr_instances) {
            instances[i] = instances[i % nr_instances];
            continue;
        }
        instances[i] = epoll_create1(0);
        for (uint32_t file = 0; file < FILES; file++) {
            struct epoll_event event = {flags, {.u32 = file}};
            MUST(epoll_ctl(instances[i], EPOLL_CTL_ADD, files[file], &event));
        }
    }
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(body, (void *)i);
    for (int i = 0; i < EVENTS; i++) {
        eventfd_write(files[i % FILES], 1);
        /* All asleep now and then. */
        if (i % 500 == 0)
            settle();
        else if (i % 7 == 0)
            sched_yield();
    }
    while (atomic_load(&taken) < EVENTS)
        sched_yield();
    for (int i = 0; i < THREADS; i++) {
        for (int file = 0; file < FILES; file++)
            eventfd_write(files[file], EVENTS + 1);
        join(threads[i]);
    }
    check(name, taken == EVENTS && wrong == 0, "%d of %d, %d wrong", taken, EVENTS, wrong);
    for (int i = 0; i < nr_instances; i++)
        close(instances[i]);
    for (int i = 0; i < FILES; i++)
        close(files[i]);
}

static void *wait_for(void *descriptor)
{
    struct epoll_event event;
    parks();
    atomic_fetch_add(&waiting, 1);
    return (void *)UNSTOPPED(epoll_wait((int)(long)descriptor, &event, 1, -1));
}

static pthread_t begin(int instance)
{
    int before = atomic_load(&waiting);
    pthread_t thread = start(wait_for, (void *)(long)instance);
    while (atomic_load(&waiting) == before)
        sched_yield();
    settle();
    return thread;
}

/* Instances in instances while a thread waits for each: as deep as the kernel lets them. */
static void nest(void)
{
    int chain[DEPTH], depth = 0, file = eventfd(0, EFD_NONBLOCK);
    pthread_t threads[DEPTH];
    struct epoll_event event = {EPOLLIN, {0}};
    for (int i = 0; i < DEPTH; i++) {
        chain[i] = epoll_create1(0);
        threads[i] = begin(chain[i]);
    }
    /* From the outside in, then the file. */
    for (; depth + 1 < DEPTH; depth++)
        if (epoll_ctl(chain[depth], EPOLL_CTL_ADD, chain[depth + 1], &event) != 0)
            break;
    printf("ok nested_%d_%d\n", depth, errno);
    int answer = epoll_ctl(chain[depth], EPOLL_CTL_ADD, file, &event);
    printf("ok nested_file_%d\n", answer);
    eventfd_write(file, 1);
    int ready = 0;
    for (int i = 0; i <= depth; i++)
        ready += (long)join(threads[i]) == 1;
    check("nested_woken", ready == depth + 1, "%d of %d", ready, depth + 1);
    for (int i = depth + 1; i < DEPTH; i++) {
        MUST(epoll_ctl(chain[i], EPOLL_CTL_ADD, file, &event));
        check("unnested_woken", (long)join(threads[i]) == 1, "not ready");
    }
    for (int i = 0; i < DEPTH; i++)
        close(chain[i]);
    close(file);
}

/* One file in more instances than may lead to it over another one. */
static void many(void)
{
    static int all[MANY];
    static pthread_t threads[MANY];
    int file = eventfd(0, EFD_NONBLOCK), added = 0, ready = 0;
    struct epoll_event event = {EPOLLIN, {0}};
    for (int i = 0; i < MANY; i++) {
        all[i] = epoll_create1(0);
        MUST(all[i] < 0);
        threads[i] = start(wait_for, (void *)(long)all[i]);
    }
    settle();
    for (int i = 0; i < MANY; i++)
        added += epoll_ctl(all[i], EPOLL_CTL_ADD, file, &event) == 0;
    check("many_added", added == MANY, "%d", added);
    eventfd_write(file, 1);
    for (int i = 0; i < MANY; i++)
        ready += (long)join(threads[i]) == 1;
    check("many_woken", ready == MANY, "%d", ready);
    for (int i = 0; i < MANY; i++)
        close(all[i]);
}

/* An instance inside a set of poll(2). */
static void *poll_instance(void *instance)
{
    struct pollfd one = {(int)(long)instance, POLLIN, 0};
    atomic_fetch_add(&waiting, 1);
    return (void *)(long)poll(&one, 1, -1);
}

int main(void)
{
    parks_begin();
    share("shared_level", 0, 1);
    share("shared_edge", EPOLLET, 1);
    share("shared_oneshot", EPOLLONESHOT, 1);
    share("own_level", 0, THREADS);
    share("own_exclusive", EPOLLEXCLUSIVE, THREADS);

    int instance = epoll_create1(0), file = eventfd(0, EFD_NONBLOCK);
    struct epoll_event event = {EPOLLIN, {0}};
    pthread_t polls = start(poll_instance, (void *)(long)instance), waits = begin(instance);
    /* Registered while they wait. */
    MUST(epoll_ctl(instance, EPOLL_CTL_ADD, file, &event));
    eventfd_write(file, 1);
    int both = (int)(long)join(polls) + (int)(long)join(waits);
    check("polled_instance", both == 2, "%d", both);
    nest();
    many();
    return verdict();
}
