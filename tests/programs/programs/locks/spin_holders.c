/* On the only virtual processor: a thread that holds a spin lock is not preempted, and one that waits for it gives way. Natively
 * neither holds. */
#include "case.h"
#include <sched.h>
#include <stdatomic.h>

#define LOOKS 40
#define YIELDS 200

static pthread_spinlock_t lock;
static atomic_int over;

static void compute(int rounds)
{
    for (volatile int round = 0; round < rounds; round++)
        continue;
}

/* Makes no call. It holds the lock most of the time, for some tens of microseconds. */
static void *work(void *unused)
{
    while (!over) {
        pthread_spin_lock(&lock);
        compute(20000);
        pthread_spin_unlock(&lock);
        compute(5000);
    }
    return unused;
}

static void *wait_for(void *unused)
{
    pthread_spin_lock(&lock);
    pthread_spin_unlock(&lock);
    return unused;
}

int main(void)
{
    MUST(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
    pthread_t worker = start(work, NULL);
    int met = 0;
    for (int look = 0; look < LOOKS; look++) {
        sched_yield();
        if (pthread_spin_trylock(&lock) == 0)
            pthread_spin_unlock(&lock);
        else
            met++;
    }
    over = 1;
    join(worker);
    check("spin_holders_go_on", met * 4 < LOOKS, "%d of %d", met, LOOKS);

    MUST(pthread_spin_lock(&lock));
    pthread_t waiter = start(wait_for, NULL);
    long long before = now(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < YIELDS; i++)
        sched_yield();
    long long used = now(CLOCK_PROCESS_CPUTIME_ID) - before;
    MUST(pthread_spin_unlock(&lock));
    join(waiter);
    /* One that spins has a whole time slice, 4 ms, each time. */
    check("spin_waiters_give_way", used < YIELDS * 1000000LL, "%lld ns", used);
    return verdict();
}
