/* Two threads that spin for each other, under a quota of one processor: with a range of virtual processors one of them is in use, so
 * that they meet at the ends of time slices only. Then the quota is lifted (UPCALL_TEST_QUOTA: the file, UPCALL_TEST_LIFTED: what is
 * written), and they meet as fast as two processors do. */
#include "case.h"
#include <stdatomic.h>

enum { SLOW = 200, FAST = 10000, WINDOW_NS = 200000000 };

static atomic_long turn;
static atomic_int stops;

static void *other(void *unused)
{
    (void)unused;
    while (!atomic_load(&stops)) {
        long now_at = atomic_load(&turn);
        if (now_at % 2 == 1)
            atomic_store(&turn, now_at + 1);
    }
    return NULL;
}

/* How often they have met in a while. */
static long meetings(void)
{
    long before = atomic_load(&turn);
    long long end = now(CLOCK_MONOTONIC) + WINDOW_NS;
    while (now(CLOCK_MONOTONIC) < end) {
        long now_at = atomic_load(&turn);
        if (now_at % 2 == 0)
            atomic_store(&turn, now_at + 1);
    }
    return atomic_load(&turn) - before;
}

int main(void)
{
    const char *file = getenv("UPCALL_TEST_QUOTA"), *lifted = getenv("UPCALL_TEST_LIFTED");
    MUST(file == NULL || lifted == NULL);
    pthread_t thread = start(other, NULL);
    /* Whoever runs this ends it if that is never so. */
    while (meetings() > SLOW) {
    }
    FILE *quota = fopen(file, "w");
    MUST(quota == NULL);
    MUST(fputs(lifted, quota) == EOF);
    MUST(fclose(quota) != 0);
    while (meetings() < FAST) {
    }
    atomic_store(&stops, 1);
    join(thread);
    check("quota_followed", 1, "%s", "");
    return verdict();
}
