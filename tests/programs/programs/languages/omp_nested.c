/* OpenMP: nested regions, and regions entered from several pthreads at once. */
#include "case.h"
#include <omp.h>

static int nested(void)
{
    int count = 0;
    omp_set_max_active_levels(3);
#pragma omp parallel num_threads(3) reduction(+ : count)
    {
#pragma omp parallel num_threads(2) reduction(+ : count)
        {
#pragma omp barrier
            count += 1;
        }
    }
    return count;
}

static void *body(void *unused)
{
    long fine = 0;
    (void)unused;
    for (int i = 0; i < 20; i++)
        fine += nested() == 6;
    return (void *)fine;
}

int main(void)
{
    int alone = nested();
    check("omp_nested", alone == 6, "%d", alone);
    pthread_t threads[3];
    long fine = 0;
    for (int i = 0; i < 3; i++)
        threads[i] = start(body, NULL);
    for (int i = 0; i < 3; i++)
        fine += (long)join(threads[i]);
    check("omp_from_pthreads", fine == 60, "%ld of 60", fine);
    return verdict();
}
