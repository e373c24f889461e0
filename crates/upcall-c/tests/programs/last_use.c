/* The last user of a mutex frees its memory while the thread that had the mutex before has not returned from its
 * upcall_mutex_unlock yet. */
#include <stdatomic.h>

#include "check.h"

enum { ROUNDS = 10000, LOOKS = 500 };

static upcall_mutex_t mutex;

/* In which round the other thread is, and how far. */
static atomic_int comes, has_it, is_done;

static void awaits(atomic_int *word, int round)
{
    while (*word != round)
        upcall_thread_yield();
}

/* It has waited for the mutex each time, and so cannot know whether others do. */
static void *is_the_last_but_one(void *unused)
{
    for (int round = 1; round <= ROUNDS; round++) {
        comes = round;
        OK(upcall_mutex_lock(&mutex));
        has_it = round;
        OK(upcall_mutex_unlock(&mutex));
        is_done = round;
        awaits(&comes, -round);
    }
    return unused;
}

int main(void)
{
    start_as_told();
    upcall_thread_t thread;
    unsigned char *bytes = (unsigned char *)&mutex;
    for (int round = 1; round <= ROUNDS; round++) {
        OK(upcall_mutex_init(&mutex));
        OK(upcall_mutex_lock(&mutex));
        if (round == 1)
            OK(upcall_thread_create(&thread, NULL, is_the_last_but_one, NULL));
        else
            comes = 1 - round;
        awaits(&comes, round);
        /* It looks at the mutex for a while before it waits. */
        for (int i = 0; i < LOOKS; i++)
            ANSWERS(EBUSY, upcall_mutex_trylock(&mutex));
        OK(upcall_mutex_unlock(&mutex));
        awaits(&has_it, round);
        while (upcall_mutex_trylock(&mutex) == EBUSY)
            ;
        OK(upcall_mutex_unlock(&mutex));
        OK(upcall_mutex_destroy(&mutex));
        memset(bytes, 0xff, sizeof mutex);
        awaits(&is_done, round);
        for (size_t i = 0; i < sizeof mutex; i++)
            CHECK(bytes[i] == 0xff);
    }
    comes = -ROUNDS;
    OK(upcall_thread_join(thread, NULL));
    puts("ok");
    return 0;
}
