/* Mutexes that processes share, with priority inheritance and robust: by threads, first threads, and a peer that runs
 * natively; and that handlers run while a thread waits for one. */
#include "shared_mutex.h"

enum { ROUNDS = 2000, THREADS = 3 };

static void *counts(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        MUST(pthread_mutex_lock(&shared->mutex));
        shared->count++;
        if (i % 32 == 0)
            sched_yield();
        MUST(pthread_mutex_unlock(&shared->mutex));
    }
    return unused;
}

static int counting_process(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(counts, NULL);
    counts(NULL);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    return 0;
}

static void on_alarm(int unused)
{
    (void)unused;
    shared->flag = 1;
}

/* A process that holds the mutex until a handler of the other one has run. */
static int holding_process(void)
{
    MUST(pthread_mutex_lock(&shared->mutex));
    shared->held = 1;
    while (!shared->flag)
        settle();
    MUST(pthread_mutex_unlock(&shared->mutex));
    return 0;
}

static void *waits(void *unused)
{
    MUST(pthread_mutex_lock(&shared->mutex));
    MUST(pthread_mutex_unlock(&shared->mutex));
    return unused;
}

static void *nothing(void *unused) { return unused; }

static volatile pid_t waiter;

static void *waits_for_alarm(void *unused)
{
    waiter = gettid();
    return waits(unused);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        map_shared();
        return strcmp(argv[1], "count") == 0 ? counting_process() : holding_process();
    }
    make_memory();
    const char *names[] = {"plain", "pi", "robust", "robust_pi"};
    for (int kind = 0; kind < 4; kind++) {
        make_mutex(kind & 2, kind & 1);
        pid_t native = native_peer("count", "");
        pid_t served = fork();
        if (served == 0)
            exit(counting_process());
        counting_process();
        int statuses = ended(native) | ended(served);
        long all = 3 * (THREADS + 1) * ROUNDS;
        check(names[kind], statuses == 0 && shared->count == all, "status %x, count %ld of %ld", statuses,
              shared->count, all);
    }

    join(start(nothing, NULL));
    struct sigaction action = {.sa_handler = on_alarm};
    MUST(sigaction(SIGALRM, &action, NULL));
    for (int thread = 0; thread < 2; thread++) {
        make_mutex(0, 1);
        pid_t holder = native_peer("hold", "");
        while (!shared->held)
            settle();
        if (thread) {
            waiter = 0;
            pthread_t waiting = start(waits_for_alarm, NULL);
            while (waiter == 0)
                settle();
            settle();
            pthread_kill(waiting, SIGALRM);
            join(waiting);
        } else {
            ualarm(30000, 0);
            waits(NULL);
        }
        int status = ended(holder);
        check(thread ? "handler_of_waiting_thread" : "handler_of_waiting_first_thread", status == 0, "status %x",
              status);
    }

    make_mutex(0, 1);
    pid_t holder = native_peer("hold", "");
    while (!shared->held)
        settle();
    struct timespec until = ahead(CLOCK_REALTIME, 30000000);
    int result = pthread_mutex_timedlock(&shared->mutex, &until);
    check("time_is_over", result == ETIMEDOUT, "%d", result);
    result = pthread_mutex_trylock(&shared->mutex);
    check("trylock_is_busy", result == EBUSY, "%d", result);
    shared->flag = 1;
    ended(holder);
    return verdict();
}
