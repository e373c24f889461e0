/* main ends by pthread_exit; the process lives on until its last thread ends, with status 0, and
 * runs what atexit registered. */
#include "case.h"

static pthread_t main_thread;

static void at_exit(void) { check("atexit_after_last_thread", 1, "unreachable"); }

static void *survivor(void *unused)
{
    void *result = NULL;
    int joined = pthread_join(main_thread, &result);
    check("main_pthread_exit", joined == 0 && result == (void *)5, "join %d, result %p", joined,
          result);
    usleep(20000);
    check("survivor", 1, "unreachable");
    return unused;
}

int main(void)
{
    main_thread = pthread_self();
    atexit(at_exit);
    pthread_detach(start(survivor, NULL));
    pthread_exit((void *)5);
}
