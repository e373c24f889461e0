/* What a thread costs that does nothing: create, run, join; the least of many measurements, in nanoseconds. */
#include "check.h"

static void *nothing(void *argument)
{
    return argument;
}

static int rounds = 20;

static void *measure(void *argument)
{
    double least = 1e18;
    for (int round = 0; round < rounds; round++) {
        enum { EACH = 20000 };
        struct timespec begin, end;
        clock_gettime(CLOCK_MONOTONIC, &begin);
        for (int i = 0; i < EACH; i++) {
            upcall_thread_t thread;
            void *result;
            OK(upcall_thread_create(&thread, NULL, nothing, &least));
            OK(upcall_thread_join(thread, &result));
            CHECK(result == &least);
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        double ns = ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / EACH;
        if (ns < least)
            least = ns;
    }
    printf("null thread: %.1f ns%s\n", least, argument ? "" : ", by the first thread");
    return NULL;
}

int main(int count, char **arguments)
{
    start_as_told();
    if (count > 1)
        rounds = atoi(arguments[1]);
    measure(NULL);
    upcall_thread_t thread;
    OK(upcall_thread_create(&thread, NULL, measure, &thread));
    OK(upcall_thread_join(thread, NULL));
    return 0;
}
