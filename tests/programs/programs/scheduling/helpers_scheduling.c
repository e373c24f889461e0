/* A function that libc calls on a thread of its own (SIGEV_THREAD) asks for the scheduling and the processors of the
 * program's threads: the first one, another one, one with a kernel thread of its own, and one that has ended. */
#include "case.h"
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static sem_t asked, finish, ready;
static pthread_t threads[3];
static pid_t ids[4];

static int first_processor(const cpu_set_t *set)
{
    int processor = 0;
    while (!CPU_ISSET(processor, set))
        processor++;
    return processor;
}

static void about(const char *name, int which, int nice)
{
    struct sched_param parameter = {.sched_priority = 7};
    struct {
        unsigned size, policy;
        unsigned long flags;
        int nice;
        unsigned priority;
        unsigned long times[3];
    } attributes;
    pthread_t thread = threads[which];
    pid_t id = ids[which];
    cpu_set_t set, one;
    int policy = 7;
    check(name, pthread_getaffinity_np(thread, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0, "errno %d", errno);
    CPU_ZERO(&one);
    CPU_SET(first_processor(&set), &one);
    int answer = pthread_setaffinity_np(thread, sizeof one, &one);
    check("sets processors", answer == 0, "%d", answer);
    CPU_ZERO(&set);
    answer = pthread_getaffinity_np(thread, sizeof set, &set);
    check("finds them", answer == 0 && CPU_EQUAL(&set, &one), "%d, %d processors", answer, CPU_COUNT(&set));
    answer = pthread_getschedparam(thread, &policy, &parameter);
    check("its policy", answer == 0 && policy == SCHED_OTHER && parameter.sched_priority == 0, "%d, %d", answer, policy);
    answer = sched_getscheduler(id);
    check("its policy by id", answer == SCHED_OTHER, "%d, errno %d", answer, errno);
    parameter.sched_priority = 7;
    answer = sched_getparam(id, &parameter);
    check("its priority", answer == 0 && parameter.sched_priority == 0, "%d, errno %d", answer, errno);
    errno = 0;
    answer = getpriority(PRIO_PROCESS, id);
    check("its nice value", answer == nice && errno == 0, "%d, errno %d", answer, errno);
    memset(&attributes, 0, sizeof attributes);
    answer = syscall(SYS_sched_getattr, id, &attributes, sizeof attributes, 0);
    check("its attributes", answer == 0 && attributes.policy == SCHED_OTHER && attributes.nice == nice,
          "%d, errno %d, nice %d", answer, errno, attributes.nice);
}

static void asks(union sigval unused)
{
    (void)unused;
    about("the first thread", 0, 0);
    about("another thread", 1, 0);
    about("a thread with a nice value", 2, 5);
    check("an ended thread", sched_getscheduler(ids[3]) == -1 && errno == ESRCH, "errno %d", errno);
    sem_post(&asked);
}

static void *waits(void *number)
{
    long own = (long)number;
    ids[own] = (pid_t)syscall(SYS_gettid);
    if (own == 2)
        MUST(setpriority(PRIO_PROCESS, ids[own], 5));
    sem_post(&ready);
    sem_wait(&finish);
    /* What was asked for it is its own. */
    cpu_set_t set;
    MUST(sched_getaffinity(0, sizeof set, &set) < 0);
    return (void *)(long)CPU_COUNT(&set);
}

static void *ends(void *unused)
{
    ids[3] = (pid_t)syscall(SYS_gettid);
    return unused;
}

int main(void)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = asks};
    struct itimerspec soon = {.it_value.tv_nsec = 1000000};
    timer_t timer;
    threads[0] = pthread_self();
    ids[0] = getpid();
    join(start(ends, NULL));
    for (long i = 1; i < 3; i++) {
        threads[i] = start(waits, (void *)i);
        sem_wait(&ready);
    }
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    MUST(timer_settime(timer, 0, &soon, NULL));
    while (sem_wait(&asked) != 0)
        ;
    sem_post(&finish);
    sem_post(&finish);
    for (int i = 1; i < 3; i++) {
        long count = (long)join(threads[i]);
        check("has one processor", count == 1, "%ld", count);
    }
    return verdict();
}
