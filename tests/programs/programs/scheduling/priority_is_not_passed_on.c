/* What a thread has asked for itself no other thread has, nor what other threads start: neither those that it wakes, nor those that
 * go on when it ends, nor one for which it asks something else. The process is a new one each time, so that the kernel threads on which they go on are still to be made. */
#include "case.h"
#include <sched.h>
#include <semaphore.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { PROCESSES = 20, WOKEN = 12 };

static sem_t go;

/* A child has what the kernel thread has that makes it. */
static int child_has_nothing(void)
{
    pid_t child = fork();
    if (child == 0) {
        usleep(1000);
        _exit(getpriority(PRIO_PROCESS, 0));
    }
    int status = -1;
    MUST(waitpid(child, &status, 0) != child);
    return status == 0;
}

static void *is_woken(void *unused)
{
    (void)unused;
    long inherits = 0;
    for (int i = 0; i < 2; i++) {
        MUST(sem_wait(&go));
        inherits += !child_has_nothing();
    }
    return (void *)inherits;
}

static void *asks(void *unused)
{
    (void)unused;
    MUST(setpriority(PRIO_PROCESS, 0, 10));
    for (int i = 0; i < 2 * WOKEN; i++) {
        MUST(sem_post(&go));
        for (volatile int j = 0; j < 10000; j++)
            ;
    }
    return NULL;
}

/* Returns how many children have what the thread has asked for. */
static long inherit(void)
{
    pthread_t woken[WOKEN];
    MUST(sem_init(&go, 0, 0));
    for (int i = 0; i < WOKEN; i++)
        woken[i] = start(is_woken, NULL);
    join(start(asks, NULL));
    long all = !child_has_nothing();
    for (int i = 0; i < WOKEN; i++)
        all += (long)join(woken[i]);
    return all;
}

static sem_t changed;

/* Tells its id, and what it has when another thread has changed that. */
static void *is_changed(void *id)
{
    *(pid_t *)id = gettid();
    MUST(sem_post(&go));
    MUST(sem_wait(&changed));
    return (void *)(long)(sched_getscheduler(0) << 8 | getpriority(PRIO_PROCESS, 0));
}

static void *asks_for(void *id)
{
    struct sched_param none = {0};
    MUST(sched_setscheduler(0, SCHED_BATCH, &none));
    MUST(setpriority(PRIO_PROCESS, *(pid_t *)id, 12));
    return NULL;
}

int main(void)
{
    int wrong = 0;
    for (int i = 0; i < PROCESSES; i++) {
        pid_t process = fork();
        if (process == 0)
            _exit(inherit() != 0);
        int status = -1;
        MUST(waitpid(process, &status, 0) != process);
        wrong += status != 0;
    }
    check("inherit", wrong == 0, "%d of %d", wrong, PROCESSES);
    pid_t id;
    MUST(sem_init(&go, 0, 0));
    MUST(sem_init(&changed, 0, 0));
    pthread_t other = start(is_changed, &id);
    MUST(sem_wait(&go));
    join(start(asks_for, &id));
    MUST(sem_post(&changed));
    long has = (long)join(other);
    check("changed", has == (SCHED_OTHER << 8 | 12), "%lx", has);
    return verdict();
}
