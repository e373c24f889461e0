/* A policy of the program's own, on one virtual processor: threads with a larger tag first, and some held until a word is
 * said; deadlines. */
#include "check.h"

struct own {
    int created, ended, blocked, idle, ticks;
    int free;
};

static uint64_t ready(void *context, struct upcall_policy_threads *threads, uint64_t thread, int why)
{
    struct own *own = context;
    uint64_t tag;
    OK(upcall_policy_gettag(threads, thread, &tag));
    ANSWERS(ESRCH, upcall_policy_gettag(threads, thread + 1000000, &tag));
    OK(upcall_policy_gettag(threads, thread, &tag));
    if (why == UPCALL_READY_CREATED)
        __atomic_add_fetch(&own->created, 1, __ATOMIC_SEQ_CST);
    if (tag == 1 && !__atomic_load_n(&own->free, __ATOMIC_SEQ_CST))
        return UPCALL_RANK_HELD;
    return UPCALL_RANK_COMMON - tag;
}

static void blocked(void *context, struct upcall_policy_threads *threads, uint64_t thread)
{
    struct own *own = context;
    (void)threads, (void)thread;
    __atomic_add_fetch(&own->blocked, 1, __ATOMIC_SEQ_CST);
}

static void ended(void *context, struct upcall_policy_threads *threads, uint64_t thread)
{
    struct own *own = context;
    (void)threads, (void)thread;
    __atomic_add_fetch(&own->ended, 1, __ATOMIC_SEQ_CST);
}

static void idle(void *context, struct upcall_policy_threads *threads)
{
    struct own *own = context;
    (void)threads;
    __atomic_add_fetch(&own->idle, 1, __ATOMIC_SEQ_CST);
}

static void tick(void *context, struct upcall_policy_threads *threads)
{
    struct own *own = context;
    __atomic_add_fetch(&own->ticks, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&own->free, __ATOMIC_SEQ_CST))
        for (uint64_t thread = 1; thread < 100; thread++)
            upcall_policy_setrank(threads, thread, UPCALL_RANK_COMMON);
}

static char order[16];
static int ran;

static void *runs(void *name)
{
    order[__atomic_fetch_add(&ran, 1, __ATOMIC_SEQ_CST)] = *(char *)name;
    return NULL;
}

static upcall_thread_t make(char *name, uint64_t tag, uint64_t deadline_ns)
{
    struct upcall_thread_attr attributes = UPCALL_THREAD_ATTR_INITIALIZER;
    upcall_thread_t thread;
    attributes.tag = tag;
    attributes.deadline_ns = deadline_ns;
    OK(upcall_thread_create(&thread, &attributes, runs, name));
    return thread;
}

static void own_policy(void)
{
    static struct own own;
    struct upcall_policy policy = UPCALL_POLICY_INITIALIZER;
    struct upcall_options options = UPCALL_OPTIONS_INITIALIZER;
    options.vps_min = options.vps_max = 1;
    options.own_policy = &policy;
    /* It must say which thread runs first. */
    ANSWERS(EINVAL, upcall_start(&options));
    policy.context = &own;
    policy.ready = ready;
    options.policy = "fifo";
    ANSWERS(EINVAL, upcall_start(&options));
    options.policy = NULL;
    policy.blocked = blocked;
    policy.ended = ended;
    policy.idle = idle;
    policy.tick = tick;
    policy.period_ns = MS;
    OK(upcall_start(&options));
    /* It was copied. */
    memset(&policy, 0, sizeof policy);

    upcall_thread_t held = make("h", 1, 0);
    upcall_thread_t threads[] = { make("a", 20, 0), make("b", 30, 0) };
    for (int i = 0; i < 2; i++)
        OK(upcall_thread_join(threads[i], NULL));
    CHECK(ran == 2 && !strchr(order, 'h'));
    while (__atomic_load_n(&own.ticks, __ATOMIC_SEQ_CST) < 3 || !__atomic_load_n(&own.idle, __ATOMIC_SEQ_CST))
        upcall_thread_sleep(MS);
    CHECK(ran == 2);
    __atomic_store_n(&own.free, 1, __ATOMIC_SEQ_CST);
    OK(upcall_thread_join(held, NULL));
    CHECK(ran == 3 && order[2] == 'h');
    while (__atomic_load_n(&own.ended, __ATOMIC_SEQ_CST) < __atomic_load_n(&own.created, __ATOMIC_SEQ_CST))
        upcall_thread_yield();
    CHECK(own.created >= 3 && own.blocked > 0);
}

static void by_deadline(void)
{
    struct upcall_options options = UPCALL_OPTIONS_INITIALIZER;
    options.vps_min = options.vps_max = 1;
    options.policy = "deadline";
    OK(upcall_start(&options));
    struct timespec now = in_ns(0), never = { 0, -1 };
    uint64_t base = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    OK(upcall_thread_setdeadline(&now));
    ANSWERS(EINVAL, upcall_thread_setdeadline(NULL));
    ANSWERS(EINVAL, upcall_thread_setdeadline(&never));
    upcall_thread_t threads[] = {
        make("c", 0, base + 300000 * MS),
        make("a", 0, base + 100000 * MS),
        make("b", 0, base + 200000 * MS),
    };
    CHECK(ran == 0);
    for (int i = 0; i < 3; i++)
        OK(upcall_thread_join(threads[i], NULL));
    CHECK(strcmp(order, "abc") == 0);
}

int main(int count, char **arguments)
{
    alarm(100);
    if (count > 1 && strcmp(arguments[1], "deadline") == 0)
        by_deadline();
    else
        own_policy();
    puts("ok");
}
