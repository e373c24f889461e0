/* Naming another thread, and reading its name, while it runs, while it is parked, and when it has
   ended: then no other thread gets the name. */
#include "case.h"
#include <fcntl.h>
#include <semaphore.h>
#include <sys/syscall.h>

static sem_t release;

static void *parked(void *unused)
{
    sem_wait(&release);
    static char name[16];
    pthread_getname_np(pthread_self(), name, sizeof name);
    (void)unused;
    return name;
}

static _Atomic long ended_id;

static void *ends(void *unused)
{
    ended_id = syscall(SYS_gettid);
    sem_wait(&release);
    return unused;
}

static void name_of_an_ended_thread(void)
{
    pthread_t ended = start(ends, NULL);
    while (ended_id == 0)
        sched_yield();
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%ld/comm", ended_id);
    int early = open(path, O_RDWR | O_CLOEXEC);
    sem_post(&release);
    for (int late; (late = open(path, O_RDWR | O_CLOEXEC)) >= 0; close(late))
        sched_yield();
    pthread_t fresh = start(parked, NULL);
    MUST(pthread_setname_np(fresh, "fresh"));
    int set = pthread_setname_np(ended, "late");
    if (write(early, "early", 5) < 0)
        errno = 0;
    close(early);
    sem_post(&release);
    char *name = join(fresh);
    check("setname_ended", set != 0, "%d", set);
    check("name_of_fresh", strcmp(name, "fresh") == 0, "%s", name);
    join(ended);
}

int main(void)
{
    MUST(sem_init(&release, 0, 0));
    pthread_t thread = start(parked, NULL);
    settle();
    char name[16] = "";
    int set = pthread_setname_np(thread, "renamed");
    int got = pthread_getname_np(thread, name, sizeof name);
    sem_post(&release);
    char *own = join(thread);
    check("setname_other", set == 0 && got == 0 && strcmp(name, "renamed") == 0, "%d, %d, %s", set,
          got, name);
    check("name_seen_by_itself", strcmp(own, "renamed") == 0, "%s", own);
    name_of_an_ended_thread();
    return verdict();
}
