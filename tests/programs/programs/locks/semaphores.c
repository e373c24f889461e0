/* Semaphores: ping-pong, many waiters, timeouts on both clocks, sem_trywait and named ones. */
#include "case.h"
#include <fcntl.h>
#include <semaphore.h>

static sem_t ping, pong, gate;

static void *echo(void *unused)
{
    for (int i = 0; i < 5000; i++) {
        sem_wait(&ping);
        sem_post(&pong);
    }
    return unused;
}

static void *pass(void *unused)
{
    sem_wait(&gate);
    return unused;
}

int main(void)
{
    MUST(sem_init(&ping, 0, 0));
    MUST(sem_init(&pong, 0, 0));
    MUST(sem_init(&gate, 0, 0));
    pthread_t threads[50], other = start(echo, NULL);
    for (int i = 0; i < 5000; i++) {
        sem_post(&ping);
        sem_wait(&pong);
    }
    join(other);
    check("semaphore_ping_pong", 1, "unreachable");
    for (int i = 0; i < 50; i++)
        threads[i] = start(pass, NULL);
    settle();
    for (int i = 0; i < 50; i++)
        sem_post(&gate);
    for (int i = 0; i < 50; i++)
        join(threads[i]);
    int value = -1;
    sem_getvalue(&gate, &value);
    check("semaphore_many", value == 0 && sem_trywait(&gate) == -1 && errno == EAGAIN, "value %d",
          value);

    for (int i = 0; i < 2; i++) {
        clockid_t clock = i == 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        struct timespec end = ahead(clock, 20000000);
        long long before = now(clock);
        int result = i == 0 ? sem_timedwait(&gate, &end) : sem_clockwait(&gate, clock, &end);
        int error = errno;
        long long waited = now(clock) - before;
        check(i == 0 ? "semaphore_timed_realtime" : "semaphore_timed_monotonic",
              result == -1 && error == ETIMEDOUT && waited >= 20000000, "%d, errno %d, %lld ns",
              result, error, waited);
    }

    char name[64];
    snprintf(name, sizeof name, "/upcall-test-%d", getpid());
    sem_t *named = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
    int fine = named != SEM_FAILED && sem_wait(named) == 0 && sem_post(named) == 0;
    check("semaphore_named", fine, "errno %d", errno);
    sem_unlink(name);
    return verdict();
}
