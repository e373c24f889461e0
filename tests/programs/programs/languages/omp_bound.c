/* Each thread of a team has the processors of its place, as OMP_PROC_BIND and proc_bind ask. */
#include "case.h"
#include <omp.h>
#include <sched.h>

static int is_in_place(void)
{
    int place = omp_get_place_num();
    if (place < 0)
        return 0;
    int count = omp_get_place_num_procs(place), ids[CPU_SETSIZE];
    omp_get_place_proc_ids(place, ids);
    int own = sched_getcpu(), found = 0;
    for (int i = 0; i < count; i++)
        found |= ids[i] == own;
    return found;
}

int main(void)
{
    int wrong = 0, threads = 0;
    for (int round = 0; round < 50; round++) {
#pragma omp parallel reduction(+ : wrong, threads) proc_bind(spread)
        {
            for (int i = 0; i < 1000; i++)
                wrong += !is_in_place();
            threads++;
        }
    }
    check("omp_places", omp_get_num_places() > 0, "%d", omp_get_num_places());
    check("omp_bound", wrong == 0, "%d", wrong);
    check("omp_threads", threads == 50 * omp_get_max_threads(), "%d", threads);
    return verdict();
}
