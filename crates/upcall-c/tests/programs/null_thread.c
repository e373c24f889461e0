/* What a thread costs that does nothing, or sets one value: create, run, join; the least of many measurements, in
 * nanoseconds. examples/null_thread.rs does the same in Rust. */
#include "check.h"

static void *nothing(void *argument)
{
    return argument;
}

static upcall_key_t key;
static pthread_key_t plain_key;

static void *sets_key(void *argument)
{
    upcall_setspecific(key, argument);
    return argument;
}

static void *sets_plain_key(void *argument)
{
    pthread_setspecific(plain_key, argument);
    return argument;
}

static void *(*body)(void *) = nothing;

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
            OK(upcall_thread_create(&thread, NULL, body, &least));
            OK(upcall_thread_join(thread, &result));
            CHECK(result == &least);
        }
        clock_gettime(CLOCK_MONOTONIC, &end);
        double ns = ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / EACH;
        if (ns < least)
            least = ns;
    }
    printf("null thread: %.1f ns%s\n", least, argument ? (char *)argument : ", by the first thread");
    return NULL;
}

int main(int count, char **arguments)
{
    start_as_told();
    if (count > 1)
        rounds = atoi(arguments[1]);
    measure(NULL);
    upcall_thread_t thread;
    OK(upcall_key_create(&key, NULL));
    OK(pthread_key_create(&plain_key, NULL));
    void *(*const bodies[])(void *) = { nothing, sets_key, sets_plain_key };
    const char *const what[] = { "", ", sets a value of a key", ", sets a value of a key of pthreads" };
    for (int i = 0; i < 3; i++) {
        body = bodies[i];
        OK(upcall_thread_create(&thread, NULL, measure, (void *)what[i]));
        OK(upcall_thread_join(thread, NULL));
    }
    return 0;
}
