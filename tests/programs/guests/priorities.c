/* Under `--policy=priority`, on one virtual processor: what threads ask for decides who runs first. */
#include "case.h"
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { THREADS = 6 };

static struct {
    int policy, priority, nice;
    sem_t go;
    atomic_int id;
    int place;
} threads[THREADS] = {
    {.policy = SCHED_OTHER, .nice = 5}, {.policy = SCHED_RR, .priority = 10},
    {.policy = SCHED_IDLE},             {.policy = SCHED_FIFO, .priority = 20},
    {.policy = SCHED_OTHER},            {.policy = SCHED_OTHER, .nice = -5},
};
/* Who is to run as which, from 1 on. */
static const int places[THREADS] = {5, 2, 6, 1, 4, 3};
static atomic_int ran;

static void *body(void *argument)
{
    long own = (long)argument;
    atomic_store(&threads[own].id, (int)syscall(SYS_gettid));
    while (sem_wait(&threads[own].go) != 0) {
    }
    threads[own].place = atomic_fetch_add(&ran, 1) + 1;
    return NULL;
}

static int set(int policy, int priority)
{
    struct sched_param parameters = {priority};
    return sched_setscheduler(0, policy, &parameters) == 0 ? 0 : errno;
}

static void *is_inherited(void *unused)
{
    struct sched_param has = {0};
    int policy = 0;
    (void)unused;
    /* libc would answer by itself. */
    policy = sched_getscheduler(0);
    sched_getparam(0, &has);
    return (void *)(long)(policy == SCHED_RR && has.sched_priority == 50);
}

int main(void)
{
    pthread_t all[THREADS];
    struct sched_param has = {0};
    void *inherited;
    for (long i = 0; i < THREADS; i++) {
        MUST(sem_init(&threads[i].go, 0, 0));
        all[i] = start(body, (void *)i);
    }
    check("sets", set(SCHED_RR, 50) == 0 && sched_getscheduler(0) == SCHED_RR &&
                      sched_getparam(0, &has) == 0 && has.sched_priority == 50,
          "policy %d, priority %d", sched_getscheduler(0), has.sched_priority);
    check("refuses", set(SCHED_RR, 0) == EINVAL && set(SCHED_FIFO, 100) == EINVAL &&
                         set(SCHED_OTHER, 1) == EINVAL && set(77, 0) == EINVAL,
          "something else than EINVAL");
    MUST(pthread_join(start(is_inherited, NULL), &inherited));
    check("inherits", inherited != NULL, "another policy");
    for (int i = 0; i < THREADS; i++) {
        struct sched_param parameters = {threads[i].priority};
        int id;
        /* They are less urgent: they begin when nothing else is to be done. */
        while ((id = atomic_load(&threads[i].id)) == 0)
            usleep(100);
        MUST(sched_setscheduler(id, threads[i].policy, &parameters));
        MUST(setpriority(PRIO_PROCESS, (id_t)id, threads[i].nice));
        errno = 0;
        int nice = getpriority(PRIO_PROCESS, (id_t)id);
        if (nice != threads[i].nice || errno != 0)
            check("nice", 0, "%d instead of %d, errno %d", nice, threads[i].nice, errno);
    }
    settle();
    for (int i = 0; i < THREADS; i++)
        MUST(sem_post(&threads[i].go));
    /* Longer than a time slice: all are ready, and nobody runs before who is more urgent. */
    for (volatile long spin = 0; spin < 50 * 1000 * 1000; spin++) {
    }
    check("the_urgent_keeps_its_processor", atomic_load(&ran) == 0, "%d ran", atomic_load(&ran));
    for (int i = 0; i < THREADS; i++)
        join(all[i]);
    for (int i = 0; i < THREADS; i++)
        if (threads[i].place != places[i])
            check("order", 0, "thread %d ran as %d, not as %d", i, threads[i].place, places[i]);
    check("all_ran", atomic_load(&ran) == THREADS, "%d", atomic_load(&ran));
    return verdict();
}
