/* A thread cancelled in sleep, nanosleep and clock_nanosleep ends at once with its handlers run. */
#include "case.h"

static int cleaned;

static void cleanup(void *unused)
{
    (void)unused;
    cleaned++;
}

static void *sleeper(void *how)
{
    pthread_cleanup_push(cleanup, NULL);
    struct timespec day = {86400, 0};
    for (;;) {
        switch ((long)how) {
        case 0: sleep(86400); break;
        case 1: nanosleep(&day, NULL); break;
        default: clock_nanosleep(CLOCK_MONOTONIC, 0, &day, NULL);
        }
    }
    pthread_cleanup_pop(0);
    return NULL;
}

int main(void)
{
    static const char *const names[] = {"cancel_sleep", "cancel_nanosleep",
                                        "cancel_clock_nanosleep"};
    for (long how = 0; how < 3; how++) {
        cleaned = 0;
        pthread_t thread = start(sleeper, (void *)how);
        settle();
        pthread_cancel(thread);
        void *result = join(thread);
        check(names[how], result == PTHREAD_CANCELED && cleaned == 1, "joined %p, %d handlers",
              result, cleaned);
    }
    return verdict();
}
