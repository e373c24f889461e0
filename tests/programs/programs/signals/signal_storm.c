/* Signals rain on threads that lock, allocate, print and switch; every handler comes back and
 * nothing deadlocks. Handlers call only what they may. */
#include "case.h"
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#define THREADS 6
static atomic_long handled, counter;
static atomic_int stop;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t posted;
static long guarded;

static void handler(int signal)
{
    int saved = errno;
    (void)signal;
    atomic_fetch_add(&handled, 1);
    sem_post(&posted);
    errno = saved;
}

static void *body(void *number)
{
    FILE *sink = fopen("/dev/null", "w");
    while (!atomic_load(&stop)) {
        errno = 4000 + (int)(long)number;
        pthread_mutex_lock(&mutex);
        guarded++;
        pthread_mutex_unlock(&mutex);
        fprintf(sink, "%ld\n", (long)number);
        free(malloc(3000));
        if (errno != 4000 + (int)(long)number)
            atomic_fetch_add(&counter, 1 << 30);
        sched_yield();
        atomic_fetch_add(&counter, 1);
    }
    fclose(sink);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    MUST(sem_init(&posted, 0, 0));
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(body, (void *)i);
    for (int i = 0; i < 1500; i++) {
        pthread_kill(threads[i % THREADS], SIGUSR1);
        while (sem_wait(&posted) != 0) {
        }
    }
    atomic_store(&stop, 1);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check("signal_storm", handled == 1500, "%ld of 1500 handled", handled);
    check("signal_storm_counts", guarded == counter, "%ld turns under the lock, %ld counted", guarded,
          counter);
    return verdict();
}
