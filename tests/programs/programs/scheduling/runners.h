/* Threads that wait, become ready all at once, and note in which order they run. */
#ifndef RUNNERS_H
#define RUNNERS_H
#include "case.h"
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { MOST_RUNNERS = 8 };

static struct {
    pthread_t thread;
    sem_t go;
    atomic_int id;
    int place;
} runners[MOST_RUNNERS];
static atomic_int ran;

static void *runner_body(void *argument)
{
    long own = (long)argument;
    atomic_store(&runners[own].id, (int)syscall(SYS_gettid));
    while (sem_wait(&runners[own].go) != 0) {
    }
    runners[own].place = atomic_fetch_add(&ran, 1) + 1;
    return NULL;
}

static void begin_runners(int count)
{
    for (long i = 0; i < count; i++) {
        MUST(sem_init(&runners[i].go, 0, 0));
        runners[i].thread = start(runner_body, (void *)i);
    }
}

/* The kernel's id. The runners may be less urgent: they begin when nothing else is to be done. */
static int id_of_runner(int runner)
{
    int id;
    while ((id = atomic_load(&runners[runner].id)) == 0)
        usleep(100);
    return id;
}

/* All become ready, while the caller, who is more urgent than they, computes longer than a time slice: none runs before
 * it is done. Then they run, each as the one that `places` says, from 1 on. */
static void let_run(int count, const int *places)
{
    settle();
    for (int i = 0; i < count; i++)
        MUST(sem_post(&runners[i].go));
    for (volatile long spin = 0; spin < 50 * 1000 * 1000; spin++) {
    }
    check("the_most_urgent_keeps_its_processor", atomic_load(&ran) == 0, "%d ran", atomic_load(&ran));
    for (int i = 0; i < count; i++)
        join(runners[i].thread);
    for (int i = 0; i < count; i++)
        if (runners[i].place != places[i])
            check("order", 0, "thread %d ran as %d, not as %d", i, runners[i].place, places[i]);
    check("all_ran", atomic_load(&ran) == count, "%d", atomic_load(&ran));
}

#endif
