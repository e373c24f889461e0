/* Threads that compute for a second of processor time, wait, and begin and end. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

double computes(double x)
{
    struct timespec used;
    do {
        for (int i = 0; i < 10000; i++)
            x = x * 1.0000001 + (double)i / (x + 3);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    } while (used.tv_sec == 0 && used.tv_nsec < 300000000);
    return x;
}

static void *busy(void *unused)
{
    volatile double x = computes(1);
    (void)x;
    return unused;
}

static void *waits(void *unused)
{
    for (int i = 0; i < 200; i++)
        usleep(1000);
    return unused;
}

static void *nothing(void *unused) { return unused; }

static void *begins(void *unused)
{
    for (int i = 0; i < 200; i++) {
        pthread_t one;
        pthread_create(&one, NULL, nothing, NULL);
        pthread_join(one, NULL);
    }
    return unused;
}

int main(void)
{
    void *(*const bodies[])(void *) = {busy, busy, busy, busy, waits, begins};
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        pthread_create(&threads[i], NULL, bodies[i], NULL);
    for (int i = 0; i < 6; i++)
        pthread_join(threads[i], NULL);
    puts("done");
    return 0;
}
