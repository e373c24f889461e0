/* OpenMP tasks: recursion, dependences, taskloop, taskwait. */
#include "case.h"

static int fibonacci(int n)
{
    if (n < 2)
        return n;
    int one, two;
#pragma omp task shared(one) firstprivate(n) if (n > 10)
    one = fibonacci(n - 1);
#pragma omp task shared(two) firstprivate(n) if (n > 10)
    two = fibonacci(n - 2);
#pragma omp taskwait
    return one + two;
}

int main(void)
{
    int result = 0, chain = 0;
    long looped = 0;
#pragma omp parallel num_threads(4)
#pragma omp single
    {
        result = fibonacci(20);
        for (int i = 0; i < 100; i++) {
#pragma omp task depend(inout : chain) firstprivate(i)
            chain = chain * 3 % 1000003 + i;
        }
#pragma omp taskwait
#pragma omp taskloop grainsize(10) reduction(+ : looped)
        for (int i = 0; i < 1000; i++)
            looped += i;
    }
    int expected = 0;
    for (int i = 0; i < 100; i++)
        expected = expected * 3 % 1000003 + i;
    check("omp_tasks", result == 6765, "%d", result);
    check("omp_depend", chain == expected, "%d, not %d", chain, expected);
    check("omp_taskloop", looped == 499500, "%ld", looped);
    return verdict();
}
