/* A thread that waits for descriptors is cancelled there, and what it waited for goes to others. */
#include "case.h"
#include "poll_parks.h"
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>

enum { WAYS = 6 };

static int file, instance;
static atomic_int ready, cleaned;
static const char *names[WAYS] = {"poll", "ppoll", "select", "pselect", "epoll_wait", "sleep"};

static void clean(void *unused)
{
    (void)unused;
    atomic_fetch_add(&cleaned, 1);
}

static int wait_for(int way)
{
    struct pollfd one = {file, POLLIN, 0};
    struct epoll_event event;
    fd_set readers;
    FD_ZERO(&readers);
    FD_SET(file, &readers);
    switch (way) {
    case 0:
        return poll(&one, 1, -1);
    case 1:
        return ppoll(&one, 1, NULL, NULL);
    case 2:
        return select(file + 1, &readers, NULL, NULL, NULL);
    case 3:
        return pselect(file + 1, &readers, NULL, NULL, NULL, NULL);
    case 4:
        return epoll_wait(instance, &event, 1, -1);
    default:
        return poll(NULL, 0, -1);
    }
}

static void *body(void *way)
{
    pthread_cleanup_push(clean, NULL);
    parks();
    atomic_fetch_add(&ready, 1);
    wait_for((int)(long)way);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    struct epoll_event event = {EPOLLIN, {0}};
    file = eventfd(0, 0);
    instance = epoll_create1(0);
    MUST(epoll_ctl(instance, EPOLL_CTL_ADD, file, &event));
    parks_begin();
    for (long way = 0; way < WAYS; way++) {
        atomic_store(&ready, 0);
        atomic_store(&cleaned, 0);
        pthread_t first = start(body, (void *)way), second = 0;
        if (way < 5)
            second = start(body, (void *)way);
        while (atomic_load(&ready) < (way < 5 ? 2 : 1))
            sched_yield();
        settle();
        pthread_cancel(first);
        check(names[way], join(first) == PTHREAD_CANCELED && cleaned == 1, "%d cleaned", cleaned);
        if (way < 5) {
            eventfd_t value;
            eventfd_write(file, 1);
            check("the_other", join(second) == NULL && cleaned == 1, "%d cleaned", cleaned);
            eventfd_read(file, &value);
        }
    }
    return verdict();
}
