/* Threads that end between a fork and its join. With a cleanup handler that joins they end as others do. The words of the command
 * line are for a thread without one: how it ends, whether the call has begun, where the fork lies. */
#include <stdatomic.h>

#include "check.h"

static upcall_semaphore_t begun, waits;
static atomic_int calls;

struct way {
    const char *how;
    int taken, handled;
    upcall_fork_t *fork;
};

static void *called(void *argument)
{
    const struct way *way = argument;
    OK(upcall_semaphore_post(&begun));
    /* It runs when its thread ends. */
    for (int i = 0; way->taken && i < 50; i++)
        upcall_thread_yield();
    if (!way->handled && way->taken)
        waits_for_ever(NULL);
    atomic_fetch_add(&calls, 1);
    return NULL;
}

static void ends(const char *how)
{
    if (strcmp(how, "exits") == 0)
        pthread_exit(NULL);
    if (strcmp(how, "is over") == 0)
        upcall_thread_exit(NULL);
    if (strcmp(how, "exits the process") == 0)
        exit(5);
    CHECK(strcmp(how, "is cancelled") == 0);
    OK(upcall_semaphore_post(&waits));
    waits_for_ever(NULL);
}

static void joins(void *fork)
{
    OK(upcall_fork_join(fork, NULL));
}

static pthread_t creator;

static void *creates(void *argument)
{
    struct way *way = argument;
    creator = pthread_self();
    upcall_fork_t own, *fork = way->fork ? way->fork : &own;
    OK(upcall_fork(fork, called, way));
    if (way->taken)
        OK(upcall_semaphore_wait(&begun));
    if (way->handled) {
        pthread_cleanup_push(joins, fork);
        ends(way->how);
        pthread_cleanup_pop(0);
    }
    ends(way->how);
    return NULL;
}

static void in_a_thread(struct way *way, int of_upcall)
{
    upcall_thread_t own;
    pthread_t other;
    OK(upcall_semaphore_init(&begun, 0));
    OK(upcall_semaphore_init(&waits, 0));
    if (of_upcall)
        OK(upcall_thread_create(&own, NULL, creates, way));
    else
        OK(pthread_create(&other, NULL, creates, way));
    if (strcmp(way->how, "is cancelled") == 0) {
        OK(upcall_semaphore_wait(&waits));
        OK(pthread_cancel(creator));
    }
    OK(of_upcall ? upcall_thread_join(own, NULL) : pthread_join(other, NULL));
}

int main(int count, char **words)
{
    static const char *const hows[] = {"exits", "is over", "is cancelled"};
    static upcall_fork_t elsewhere;
    start_as_told();
    if (count > 3) {
        struct way way = {words[1], strcmp(words[2], "begun") == 0, 0, strcmp(words[3], "static") == 0 ? &elsewhere : NULL};
        in_a_thread(&way, 1);
        puts("ended");
        return 0;
    }
    int expected = 0;
    for (int i = 0; i < 12; i++) {
        struct way way = {hows[i % 3], i / 6, 1, NULL};
        in_a_thread(&way, i / 3 % 2);
        CHECK(atomic_load(&calls) == ++expected);
    }
    puts("ok");
}
