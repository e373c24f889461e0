/* Naming another thread, and reading its name, while it runs and while it is parked. */
#include "case.h"
#include <semaphore.h>

static sem_t release;

static void *parked(void *unused)
{
    sem_wait(&release);
    static char name[16];
    pthread_getname_np(pthread_self(), name, sizeof name);
    (void)unused;
    return name;
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
    return verdict();
}
