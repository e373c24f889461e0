/* Threads: what they are given and give, how they end, what they are called, and what is refused. */
#include <sched.h>
#include <sys/wait.h>

#include "check.h"

static void *doubles(void *argument)
{
    return (char *)argument + (size_t)argument;
}

static void values(void)
{
    enum { AT_ONCE = 500 };
    upcall_thread_t threads[AT_ONCE];
    for (size_t i = 0; i < AT_ONCE; i++)
        OK(upcall_thread_create(&threads[i], NULL, doubles, (void *)i));
    for (size_t i = 0; i < AT_ONCE; i++) {
        void *result;
        OK(upcall_thread_join(threads[i], &result));
        CHECK((size_t)result == 2 * i);
    }
}

/* A tree of threads: each makes two. */
static void *tree(void *argument)
{
    size_t depth = (size_t)argument;
    if (depth == 0)
        return (void *)1;
    upcall_thread_t left;
    void *result;
    OK(upcall_thread_create(&left, NULL, tree, (void *)(depth - 1)));
    size_t right = (size_t)tree((void *)(depth - 1));
    OK(upcall_thread_join(left, &result));
    return (void *)((size_t)result + right);
}

static void *joins_itself(void *argument)
{
    ANSWERS(EDEADLK, upcall_thread_join(upcall_thread_self(), NULL));
    ANSWERS(EDEADLK, upcall_thread_tryjoin(upcall_thread_self(), NULL));
    *(upcall_thread_t *)argument = upcall_thread_self();
    return NULL;
}

static void *waits(void *semaphore)
{
    OK(upcall_semaphore_wait(semaphore));
    return semaphore;
}

static void *detaches_itself(void *semaphore)
{
    OK(upcall_thread_detach(upcall_thread_self()));
    ANSWERS(EINVAL, upcall_thread_detach(upcall_thread_self()));
    OK(upcall_semaphore_post(semaphore));
    return NULL;
}

static void *posts(void *semaphore)
{
    OK(upcall_semaphore_post(semaphore));
    return NULL;
}

static void rights(void)
{
    upcall_thread_t thread, seen;
    void *result;
    OK(upcall_thread_create(&thread, NULL, joins_itself, &seen));
    OK(upcall_thread_join(thread, NULL));
    CHECK(seen == thread);

    /* A thread that nobody joins uses it, perhaps after this function has returned. */
    static upcall_semaphore_t gate = UPCALL_SEMAPHORE_INITIALIZER(0);
    OK(upcall_thread_create(&thread, NULL, waits, &gate));
    ANSWERS(EBUSY, upcall_thread_tryjoin(thread, &result));
    OK(upcall_semaphore_post(&gate));
    int answer;
    while ((answer = upcall_thread_tryjoin(thread, &result)) == EBUSY)
        upcall_thread_yield();
    CHECK(answer == 0 && result == &gate);

    OK(upcall_thread_create(&thread, NULL, waits, &gate));
    OK(upcall_thread_detach(thread));
    ANSWERS(EINVAL, upcall_thread_join(thread, NULL));
    ANSWERS(EINVAL, upcall_thread_detach(thread));
    OK(upcall_semaphore_post(&gate));

    upcall_semaphore_t done = UPCALL_SEMAPHORE_INITIALIZER(0);
    struct upcall_thread_attr detached = UPCALL_THREAD_ATTR_INITIALIZER;
    detached.detached = 1;
    for (int i = 0; i < 200; i++) {
        OK(upcall_thread_create(&thread, NULL, detaches_itself, &done));
        OK(upcall_thread_create(NULL, &detached, posts, &done));
    }
    for (int i = 0; i < 400; i++)
        OK(upcall_semaphore_wait(&done));

    /* The first thread, and one of pthreads, are threads too, that nobody can join here. */
    CHECK(upcall_thread_self() && upcall_thread_self() == upcall_thread_self());
    ANSWERS(EINVAL, upcall_thread_detach(upcall_thread_self()));
    ANSWERS(EDEADLK, upcall_thread_join(upcall_thread_self(), NULL));
}

static void *exits(void *argument)
{
    if (argument)
        upcall_thread_exit(argument);
    pthread_exit(NULL);
}

static void *is_cancelled(void *semaphore)
{
    OK(upcall_semaphore_post(semaphore));
    for (;;)
        usleep(1000);
    return NULL;
}

static pthread_t identity;

static void *says_who(void *semaphore)
{
    identity = pthread_self();
    return is_cancelled(semaphore);
}

static void *exits_of_pthreads(void *argument)
{
    upcall_thread_exit(argument);
}

static void ends(void)
{
    for (int i = 0; i < 50; i++) {
        upcall_thread_t one, two;
        void *result;
        OK(upcall_thread_create(&one, NULL, exits, &i));
        OK(upcall_thread_create(&two, NULL, exits, NULL));
        OK(upcall_thread_join(one, &result));
        CHECK(result == &i);
        OK(upcall_thread_join(two, &result));
        CHECK(result == UPCALL_CANCELED && UPCALL_CANCELED == PTHREAD_CANCELED);
    }
    upcall_semaphore_t begun = UPCALL_SEMAPHORE_INITIALIZER(0);
    upcall_thread_t thread;
    void *result;
    OK(upcall_thread_create(&thread, NULL, says_who, &begun));
    OK(upcall_semaphore_wait(&begun));
    OK(pthread_cancel(identity));
    OK(upcall_thread_join(thread, &result));
    CHECK(result == UPCALL_CANCELED);
    pthread_t plain;
    OK(pthread_create(&plain, NULL, exits_of_pthreads, &begun));
    OK(pthread_join(plain, &result));
    CHECK(result == &begun);
}

static void *names(void *expected)
{
    char own[16], shown[16];
    OK(upcall_thread_getname(upcall_thread_self(), own, sizeof own));
    OK(pthread_getname_np(pthread_self(), shown, sizeof shown));
    CHECK(strcmp(own, expected) == 0 && strcmp(shown, expected) == 0);
    OK(upcall_thread_setname("another"));
    OK(upcall_thread_getname(upcall_thread_self(), own, 8));
    ANSWERS(ERANGE, upcall_thread_getname(upcall_thread_self(), own, 7));
    OK(pthread_getname_np(pthread_self(), shown, sizeof shown));
    CHECK(strcmp(own, "another") == 0 && strcmp(shown, "another") == 0);
    return NULL;
}

static void *has_no_name(void *unused)
{
    char own[16] = "?", shown[16];
    (void)unused;
    OK(upcall_thread_getname(upcall_thread_self(), own, sizeof own));
    OK(pthread_getname_np(pthread_self(), shown, sizeof shown));
    CHECK(own[0] == 0 && strcmp(shown, "another") != 0);
    return NULL;
}

/* Uses so much of its stack. */
static void *uses_stack(void *argument)
{
    size_t size = (size_t)argument;
    volatile char bytes[size];
    for (size_t i = 0; i < size; i += 1024)
        bytes[i] = 1;
    return (void *)(size_t)bytes[0];
}

static void attributes(void)
{
    upcall_thread_t thread;
    struct upcall_thread_attr attr = UPCALL_THREAD_ATTR_INITIALIZER;
    attr.name = "a long name for a thread";
    for (int i = 0; i < 3; i++) {
        OK(upcall_thread_create(&thread, &attr, names, "a long name for"));
        OK(upcall_thread_join(thread, NULL));
        OK(upcall_thread_create(&thread, NULL, has_no_name, NULL));
        OK(upcall_thread_join(thread, NULL));
    }
    attr.name = NULL;
    static const size_t sizes[] = { 1, 48 << 10, 256 << 10, 2 << 20, 4 << 20, 16 << 20, 64 << 20 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        attr.stack_size = sizes[i];
        size_t used = sizes[i] < (32 << 10) ? 1 << 10 : sizes[i] - (16 << 10);
        OK(upcall_thread_create(&thread, &attr, uses_stack, (void *)used));
        OK(upcall_thread_join(thread, NULL));
    }
}

static void refusals(void)
{
    upcall_thread_t thread;
    struct upcall_thread_attr attr = UPCALL_THREAD_ATTR_INITIALIZER;
    ANSWERS(EINVAL, upcall_thread_create(NULL, NULL, doubles, NULL));
    ANSWERS(EINVAL, upcall_thread_create(NULL, &attr, doubles, NULL));
    ANSWERS(EINVAL, upcall_thread_create(&thread, NULL, NULL, NULL));
    attr.stack_size = SIZE_MAX;
    ANSWERS(EINVAL, upcall_thread_create(&thread, &attr, doubles, NULL));
    attr.stack_size = 0;
    attr.priority_class = 17;
    ANSWERS(EINVAL, upcall_thread_create(&thread, &attr, doubles, NULL));
    attr.priority_class = UPCALL_PRIORITY_REALTIME;
    ANSWERS(EINVAL, upcall_thread_create(&thread, &attr, doubles, NULL));
    attr = (struct upcall_thread_attr)UPCALL_THREAD_ATTR_INITIALIZER;
    attr.size = 8;
    ANSWERS(EINVAL, upcall_thread_create(&thread, &attr, doubles, NULL));
    /* What a program of a later version passes: what is unknown here may be zero. */
    struct {
        struct upcall_thread_attr attr;
        uint64_t later;
    } later = { UPCALL_THREAD_ATTR_INITIALIZER, 0 };
    later.attr.size = sizeof later;
    OK(upcall_thread_create(&thread, &later.attr, doubles, NULL));
    OK(upcall_thread_join(thread, NULL));
    later.later = 1;
    ANSWERS(E2BIG, upcall_thread_create(&thread, &later.attr, doubles, NULL));

    struct upcall_options options = UPCALL_OPTIONS_INITIALIZER;
    options.policy = "fastest";
    ANSWERS(EINVAL, upcall_start(&options));
    options.policy = NULL;
    options.vps_max = 3;
    ANSWERS(EINVAL, upcall_start(&options));
    options.vps_max = 0;
    options.time_slice_ns = 1;
    ANSWERS(EINVAL, upcall_start(&options));

    ANSWERS(ESRCH, upcall_thread_join(NULL, NULL));
    ANSWERS(ESRCH, upcall_thread_detach(NULL));
    ANSWERS(ESRCH, upcall_thread_unpark(NULL));
    ANSWERS(EINVAL, upcall_thread_setname(NULL));
    ANSWERS(EINVAL, upcall_thread_timedpark(NULL));
    ANSWERS(EINVAL, upcall_deadline(NULL, 1));
    struct timespec wrong = { 0, 1000000000 };
    ANSWERS(EINVAL, upcall_thread_timedpark(&wrong));
    wrong.tv_nsec = -1;
    ANSWERS(EINVAL, upcall_thread_timedpark(&wrong));
}

static void *parks(void *count)
{
    while (*(volatile int *)count < 100)
        OK(upcall_thread_park());
    return NULL;
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000 * MS + time.tv_nsec;
}

static void parking_and_sleeping(void)
{
    upcall_thread_t thread;
    volatile int count = 0;
    OK(upcall_thread_create(&thread, NULL, parks, (void *)&count));
    while (count < 100) {
        count++;
        OK(upcall_thread_unpark(thread));
        upcall_thread_yield();
    }
    OK(upcall_thread_join(thread, NULL));
    OK(upcall_thread_unpark(upcall_thread_self()));
    OK(upcall_thread_park());
    uint64_t before = now();
    struct timespec deadline = in_ns(5 * MS);
    int answer;
    while ((answer = upcall_thread_timedpark(&deadline)) == 0)
        ;
    CHECK(answer == ETIMEDOUT && now() - before >= 5 * MS - MS / 10);
    ANSWERS(ETIMEDOUT, upcall_thread_timedpark(&deadline));
    OK(upcall_thread_unpark(upcall_thread_self()));
    OK(upcall_thread_timedpark(&deadline));
    before = now();
    upcall_thread_sleep(3 * MS);
    CHECK(now() - before >= 3 * MS);
    struct timespec far = in_ns(UINT64_MAX);
    CHECK(far.tv_sec > 18000000000ll || sizeof far.tv_sec < 8);
}

static void *forks(void *argument)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* Alone, and able to make others. */
        CHECK(upcall_thread_self());
        values();
        CHECK(tree((void *)6) == (void *)64);
        if (argument)
            _exit(41);
        return NULL;
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    return (void *)(size_t)(WEXITSTATUS(status) + 1);
}

static void forking(void)
{
    upcall_thread_t thread;
    void *result;
    OK(upcall_thread_create(&thread, NULL, forks, &thread));
    OK(upcall_thread_join(thread, &result));
    CHECK(result == (void *)42);
    /* The child's only thread returns: the child ends with 0. */
    OK(upcall_thread_create(&thread, NULL, forks, NULL));
    OK(upcall_thread_join(thread, &result));
    CHECK(result == (void *)1);
}

int main(void)
{
    start_as_told();
    values();
    for (int i = 0; i < 4; i++)
        CHECK(tree((void *)10) == (void *)1024);
    rights();
    ends();
    attributes();
    refusals();
    parking_and_sleeping();
    forking();
    errno = 77;
    values();
    CHECK(errno == 77);
    puts("ok");
    return 0;
}
