/* The policy "priority", on one virtual processor: the more urgent first, whichever thread asks for it and when. */
#include "check.h"

static upcall_semaphore_t gate = UPCALL_SEMAPHORE_INITIALIZER(0);
static char order[16];
static int ran;

static void *runs(void *letter)
{
    order[ran++] = *(char *)letter;
    return NULL;
}

static void *waits_and_runs(void *letter)
{
    OK(upcall_semaphore_wait(&gate));
    return runs(letter);
}

static upcall_thread_t make(void *(*body)(void *), const char *letter, int of_class, int priority)
{
    upcall_thread_t thread;
    struct upcall_thread_attr attr = UPCALL_THREAD_ATTR_INITIALIZER;
    attr.priority_class = of_class;
    attr.priority = priority;
    OK(upcall_thread_create(&thread, &attr, body, (void *)letter));
    return thread;
}

static void is(upcall_thread_t thread, int of_class, int priority)
{
    int class_now, priority_now;
    OK(upcall_thread_getpriority(thread, &class_now, &priority_now));
    CHECK(class_now == of_class && priority_now == priority);
    OK(upcall_thread_getpriority(thread, NULL, NULL));
}

static upcall_mutex_t mutex = UPCALL_MUTEX_INITIALIZER;

static void *holds_a_mutex(void *letter)
{
    OK(upcall_mutex_lock(&mutex));
    OK(upcall_semaphore_post(&gate));
    runs(letter);
    OK(upcall_mutex_unlock(&mutex));
    return NULL;
}

/* The holder of a mutex that a more urgent thread waits for runs before those between the two. */
static void lending(void)
{
    memset(order, 0, sizeof order);
    ran = 0;
    upcall_thread_t holder = make(holds_a_mutex, "h", UPCALL_PRIORITY_NORMAL, 0);
    OK(upcall_semaphore_wait(&gate));
    CHECK(ran == 0);
    upcall_thread_t between = make(runs, "b", UPCALL_PRIORITY_REALTIME, 10);
    OK(upcall_mutex_lock(&mutex));
    CHECK(strcmp(order, "h") == 0);
    OK(upcall_mutex_unlock(&mutex));
    OK(upcall_thread_join(holder, NULL));
    OK(upcall_thread_join(between, NULL));
    CHECK(strcmp(order, "hb") == 0);
}

int main(void)
{
    struct upcall_options options = UPCALL_OPTIONS_INITIALIZER;
    options.vps_min = options.vps_max = 1;
    options.policy = "priority";
    OK(upcall_start(&options));
    upcall_thread_t own = upcall_thread_self(), threads[6];
    is(own, UPCALL_PRIORITY_NORMAL, 0);
    OK(upcall_thread_setpriority(own, UPCALL_PRIORITY_REALTIME, 50));
    is(own, UPCALL_PRIORITY_REALTIME, 50);

    /* Less urgent than this one: none has begun. A more urgent one runs at once. */
    threads[0] = make(runs, "i", UPCALL_PRIORITY_IDLE, 0);
    threads[1] = make(runs, "l", UPCALL_PRIORITY_NORMAL, 10);
    threads[2] = make(runs, "n", UPCALL_PRIORITY_NORMAL, -10);
    threads[3] = make(runs, "r", UPCALL_PRIORITY_REALTIME, 10);
    CHECK(ran == 0);
    threads[4] = make(runs, "u", UPCALL_PRIORITY_REALTIME, 60);
    CHECK(ran == 1);
    is(threads[3], UPCALL_PRIORITY_REALTIME, 10);
    is(threads[1], UPCALL_PRIORITY_NORMAL, 10);
    /* Of one that has not begun: before and after it was made ready. */
    OK(upcall_thread_setpriority(threads[0], UPCALL_PRIORITY_REALTIME, 20));
    for (int i = 0; i < 5; i++)
        OK(upcall_thread_join(threads[i], NULL));
    CHECK(strcmp(order, "uirnl") == 0);

    /* Of those that wait. */
    memset(order, 0, sizeof order);
    ran = 0;
    const char *letters[] = { "a", "b", "c" };
    for (int i = 0; i < 3; i++)
        threads[i] = make(waits_and_runs, letters[i], UPCALL_PRIORITY_NORMAL, 0);
    OK(upcall_thread_setpriority(own, UPCALL_PRIORITY_IDLE, 0));
    OK(upcall_thread_setpriority(own, UPCALL_PRIORITY_REALTIME, 50));
    OK(upcall_thread_setpriority(threads[1], UPCALL_PRIORITY_REALTIME, 2));
    OK(upcall_thread_setpriority(threads[2], UPCALL_PRIORITY_REALTIME, 3));
    for (int i = 0; i < 3; i++)
        OK(upcall_semaphore_post(&gate));
    CHECK(ran == 0);
    for (int i = 0; i < 3; i++)
        OK(upcall_thread_join(threads[i], NULL));
    CHECK(strcmp(order, "cba") == 0);

    lending();

    ANSWERS(EINVAL, upcall_thread_setpriority(own, UPCALL_PRIORITY_INHERITED, 0));
    ANSWERS(EINVAL, upcall_thread_setpriority(own, UPCALL_PRIORITY_NORMAL, 20));
    ANSWERS(EINVAL, upcall_thread_setpriority(own, UPCALL_PRIORITY_REALTIME, 0));
    ANSWERS(EINVAL, upcall_thread_setpriority(own, UPCALL_PRIORITY_IDLE, 1));
    ANSWERS(ESRCH, upcall_thread_setpriority(NULL, UPCALL_PRIORITY_IDLE, 0));
    ANSWERS(ESRCH, upcall_thread_getpriority(NULL, NULL, NULL));
    puts("ok");
    return 0;
}
