/* OpenMP: parallel for with every schedule, reductions, threadprivate and ordered. */
#include "case.h"
#include <omp.h>

static int own;
#pragma omp threadprivate(own)

int main(void)
{
    long sum = 0, dynamic = 0, guided = 0;
    for (int round = 0; round < 50; round++) {
#pragma omp parallel for num_threads(4) reduction(+ : sum)
        for (int i = 0; i < 10000; i++)
            sum += i;
    }
    check("omp_static", sum == 50L * 49995000, "%ld", sum);
#pragma omp parallel for num_threads(6) schedule(dynamic, 7) reduction(+ : dynamic)
    for (int i = 0; i < 10000; i++)
        dynamic += i;
    check("omp_dynamic", dynamic == 49995000, "%ld", dynamic);
#pragma omp parallel for num_threads(5) schedule(guided) reduction(+ : guided)
    for (int i = 0; i < 10000; i++)
        guided += i;
    check("omp_guided", guided == 49995000, "%ld", guided);

    int order[100], next = 0;
#pragma omp parallel for ordered schedule(static, 1) num_threads(4)
    for (int i = 0; i < 100; i++) {
#pragma omp ordered
        order[next++] = i;
    }
    int wrong = 0;
    for (int i = 0; i < 100; i++)
        wrong += order[i] != i;
    check("omp_ordered", wrong == 0, "%d out of order", wrong);

    int mixed = 0;
#pragma omp parallel num_threads(4)
    own = omp_get_thread_num();
#pragma omp parallel num_threads(4) reduction(+ : mixed)
    mixed += own != omp_get_thread_num();
    check("omp_threadprivate", mixed == 0, "%d changed", mixed);
    return verdict();
}
