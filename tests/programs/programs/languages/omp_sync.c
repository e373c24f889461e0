/* OpenMP: critical, atomic, barrier, single, sections and locks. */
#include "case.h"
#include <omp.h>

int main(void)
{
    int counter = 0, atomically = 0, early = 0, singles = 0, sections = 0;
    int arrived[50] = {0};
    omp_lock_t lock;
    int locked = 0;
    omp_init_lock(&lock);
#pragma omp parallel num_threads(6)
    {
        for (int i = 0; i < 200; i++) {
#pragma omp critical
            counter++;
#pragma omp atomic
            atomically++;
            omp_set_lock(&lock);
            locked++;
            omp_unset_lock(&lock);
        }
        for (int phase = 0; phase < 50; phase++) {
#pragma omp atomic
            arrived[phase]++;
#pragma omp barrier
            if (arrived[phase] != 6) {
#pragma omp atomic
                early++;
            }
#pragma omp single
            singles++;
        }
#pragma omp sections
        {
#pragma omp section
            {
#pragma omp atomic
                sections += 1;
            }
#pragma omp section
            {
#pragma omp atomic
                sections += 10;
            }
        }
    }
    omp_destroy_lock(&lock);
    check("omp_critical", counter == 1200 && atomically == 1200 && locked == 1200, "%d, %d, %d",
          counter, atomically, locked);
    check("omp_barrier", early == 0, "%d early", early);
    check("omp_single", singles == 50 && sections == 11, "%d, %d", singles, sections);
    return verdict();
}
