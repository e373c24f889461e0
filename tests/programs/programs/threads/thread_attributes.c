/* What a thread may ask about itself: its stack, name, CPU clock, affinity, kernel id. */
#include "case.h"
#include <sched.h>
#include <sys/syscall.h>

static int stack_holds(void)
{
    pthread_attr_t attributes;
    void *base;
    size_t size;
    char here;
    MUST(pthread_getattr_np(pthread_self(), &attributes));
    MUST(pthread_attr_getstack(&attributes, &base, &size));
    MUST(pthread_attr_destroy(&attributes));
    return (char *)base < &here && &here < (char *)base + size;
}

static void *body(void *unused)
{
    check("getattr_np", stack_holds(), "a local variable lies outside the stack");

    char name[16] = "";
    MUST(pthread_setname_np(pthread_self(), "a-name"));
    sched_yield();
    MUST(pthread_getname_np(pthread_self(), name, sizeof name));
    check("setname_getname", strcmp(name, "a-name") == 0, "name %s", name);
    int refused = pthread_setname_np(pthread_self(), "sixteen and more characters");
    check("setname_too_long", refused == ERANGE, "gave %d", refused);

    clockid_t clock;
    MUST(pthread_getcpuclockid(pthread_self(), &clock));
    long long before = now(clock), other = now(CLOCK_THREAD_CPUTIME_ID);
    volatile long sum = 0;
    for (long i = 0; i < 20000000; i++)
        sum += i;
    long long after = now(clock), later = now(CLOCK_THREAD_CPUTIME_ID);
    check("getcpuclockid", after > before && later > other, "%lld to %lld, %lld to %lld", before,
          after, other, later);

    cpu_set_t set;
    CPU_ZERO(&set);
    MUST(pthread_getaffinity_np(pthread_self(), sizeof set, &set));
    int cpu = sched_getcpu();
    check("getaffinity", CPU_COUNT(&set) >= 1 && cpu >= 0, "%d processors, on %d",
          CPU_COUNT(&set), cpu);

    long id = syscall(SYS_gettid), stable = 1;
    for (int i = 0; i < 50; i++) {
        if (i % 10 == 0)
            usleep(500);
        else
            sched_yield();
        stable = stable && syscall(SYS_gettid) == id && gettid() == id;
    }
    check("gettid", stable && id != getpid() && id > 0, "id %ld, process %d", id, getpid());
    return unused;
}

int main(void)
{
    check("main_stack", stack_holds(), "a local variable lies outside main's stack");
    check("main_tid", gettid() == getpid(), "%d, %d", gettid(), getpid());
    join(start(body, NULL));
    return verdict();
}
