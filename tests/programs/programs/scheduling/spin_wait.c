/* More threads than processors spin, without ever yielding, for one that is ready and must run:
 * only preemption ends it. */
#include "case.h"
#include <stdatomic.h>

#define SPINNERS 8
static atomic_int turn;

static void *body(void *number)
{
    int self = (int)(long)number;
    for (int lap = 0; lap < 3; lap++) {
        while (atomic_load(&turn) != lap * SPINNERS + self) {
        }
        atomic_fetch_add(&turn, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[SPINNERS];
    for (long i = 0; i < SPINNERS; i++)
        threads[i] = start(body, (void *)i);
    for (int i = 0; i < SPINNERS; i++)
        join(threads[i]);
    check("spin_wait", turn == 3 * SPINNERS, "%d turns", turn);
    return verdict();
}
