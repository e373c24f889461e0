/* Changes of the process's identity that one of libc's own threads makes (in a function for a timer), and those that
 * follow: each is made by all threads, and none is answered with what an earlier one was. In a child, as root; elsewhere
 * there is nothing to change. */
#include "case.h"
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOBODY 65534
#define THREADS 3
static sem_t changed;
static pthread_barrier_t asks, asked;
static atomic_int expected, wrong, over, by_helper;

static int effective(void) { return (int)syscall(SYS_geteuid); }

static void *looks(void *unused)
{
    for (;;) {
        pthread_barrier_wait(&asks);
        if (atomic_load(&over))
            return unused;
        atomic_fetch_add(&wrong, effective() != atomic_load(&expected));
        pthread_barrier_wait(&asked);
    }
}

static void all_have(int id)
{
    atomic_store(&expected, id);
    pthread_barrier_wait(&asks);
    pthread_barrier_wait(&asked);
    atomic_fetch_add(&wrong, effective() != id);
}

static void on_timer(union sigval value)
{
    int id = value.sival_int;
    if (seteuid(id) != 0 || effective() != id)
        atomic_fetch_add(&by_helper, 1);
    sem_post(&changed);
}

static void change_by_helper(int id)
{
    timer_t timer;
    struct sigevent event = {
        .sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer, .sigev_value.sival_int = id};
    struct itimerspec once = {.it_value = {.tv_nsec = 1000000}};
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    MUST(timer_settime(timer, 0, &once, NULL));
    while (sem_wait(&changed) != 0) {
    }
}

static int changes(void)
{
    sem_init(&changed, 0, 0);
    pthread_barrier_init(&asks, NULL, THREADS + 1);
    pthread_barrier_init(&asked, NULL, THREADS + 1);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(looks, NULL);
    for (int i = 0; i < 5; i++) {
        change_by_helper(NOBODY);
        all_have(NOBODY);
        if (seteuid(0) != 0)
            atomic_fetch_add(&wrong, 1);
        all_have(0);
        if (seteuid(NOBODY) != 0)
            atomic_fetch_add(&wrong, 1);
        all_have(NOBODY);
        change_by_helper(0);
        all_have(0);
    }
    atomic_store(&over, 1);
    pthread_barrier_wait(&asks);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("identity_by_helper", atomic_load(&wrong) == 0 && atomic_load(&by_helper) == 0, "%d wrong, %d of the helper",
          atomic_load(&wrong), atomic_load(&by_helper));
    return verdict();
}

int main(void)
{
    if (getuid() != 0) {
        check("identity_by_helper", 1, "not root");
        return verdict();
    }
    pid_t child = fork();
    if (child == 0)
        _exit(changes());
    int status = -1;
    waitpid(child, &status, 0);
    check("identity_by_helper_child", status == 0, "status %#x", status);
    return verdict();
}
