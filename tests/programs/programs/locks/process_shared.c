/* Mutexes, conditions and semaphores in memory shared between processes, threads on both sides;
 * a robust one whose owner process is killed. */
#include "case.h"
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

struct shared {
    pthread_mutex_t mutex, robust;
    pthread_cond_t condition;
    sem_t semaphore, owned;
    long counter;
    int turn;
};
static struct shared *shared;
static pid_t child;

static volatile sig_atomic_t killed;

/* Where one of the processes is refused its thread the other one would wait for ever. */
static void end_child(void)
{
    killed = 1;
    if (child > 0)
        kill(child, SIGKILL);
}

/* SIGCHLD comes for other reasons, too. */
static void child_ended(int signal)
{
    siginfo_t information = {0};
    (void)signal;
    if (!killed && waitid(P_PID, (id_t)child, &information, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        information.si_pid == child)
        _exit(1);
}

static void *count(void *side)
{
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&shared->mutex);
        while (side != NULL && shared->turn != (int)(long)side)
            pthread_cond_wait(&shared->condition, &shared->mutex);
        shared->turn = 3 - shared->turn;
        shared->counter++;
        pthread_cond_broadcast(&shared->condition);
        pthread_mutex_unlock(&shared->mutex);
    }
    return NULL;
}

int main(void)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t mutex;
    pthread_condattr_t condition;
    MUST(pthread_mutexattr_init(&mutex));
    MUST(pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED));
    MUST(pthread_mutex_init(&shared->mutex, &mutex));
    MUST(pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST));
    MUST(pthread_mutex_init(&shared->robust, &mutex));
    MUST(pthread_condattr_init(&condition));
    MUST(pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED));
    MUST(pthread_cond_init(&shared->condition, &condition));
    MUST(sem_init(&shared->semaphore, 1, 0));
    MUST(sem_init(&shared->owned, 1, 0));
    shared->turn = 1;
    fflush(stdout);
    MUST(atexit(end_child));
    MUST(signal(SIGCHLD, child_ended) == SIG_ERR);
    child = fork();
    long side = child == 0 ? 2 : 1;
    join(start(count, (void *)side));
    if (child == 0) {
        sem_wait(&shared->semaphore);
        pthread_mutex_lock(&shared->robust);
        sem_post(&shared->owned);
        for (;;)
            pause();
    }
    sem_post(&shared->semaphore);
    while (sem_wait(&shared->owned) != 0) {
    }
    check("process_shared", shared->counter == 600, "%ld of 600", shared->counter);
    int busy = pthread_mutex_trylock(&shared->robust);
    killed = 1;
    kill(child, SIGKILL);
    int result = pthread_mutex_lock(&shared->robust), status = 0;
    waitpid(child, &status, 0);
    child = 0;
    check("process_shared_robust", busy == EBUSY && result == EOWNERDEAD, "before %d, after %d",
          busy, result);
    check("process_killed", WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %#x", status);
    return verdict();
}
