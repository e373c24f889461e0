/* A thread runs on the processors that it was given, and on no other: by itself, by another thread while it computes,
 * waits or has not begun, by its attributes, from its creator, and in a handler. */
#include "case.h"
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static cpu_set_t all, masks[2];
static int processors[2];
static sem_t posted, told;

static int has(pthread_t thread, const cpu_set_t *wanted)
{
    cpu_set_t mask;
    CPU_ZERO(&mask);
    return pthread_getaffinity_np(thread, sizeof mask, &mask) == 0 && CPU_EQUAL(&mask, wanted);
}

/* True if the caller is on that processor each time it looks, for some time of computing. */
static int stays_on(int processor)
{
    unsigned number = 0;
    long long end = now(CLOCK_THREAD_CPUTIME_ID) + 20 * 1000 * 1000;
    do {
        for (int i = 0; i < 1000; i++)
            if (sched_getcpu() != processor)
                return 0;
        if (syscall(SYS_getcpu, &number, NULL, NULL) != 0 || (int)number != processor)
            return 0;
    } while (now(CLOCK_THREAD_CPUTIME_ID) < end);
    return 1;
}

static void *by_itself(void *unused)
{
    long wrong = 0;
    for (int i = 0; i < 4; i++) {
        MUST(sched_setaffinity(0, sizeof(cpu_set_t), &masks[i & 1]));
        wrong |= (stays_on(processors[i & 1]) ? 0 : 1) | (has(pthread_self(), &masks[i & 1]) ? 0 : 2);
    }
    MUST(pthread_setaffinity_np(pthread_self(), sizeof all, &all));
    return (void *)(wrong | (has(pthread_self(), &all) ? 0 : 4) | (long)unused);
}

static _Atomic int seen = -1, counted, stop;

static void *computes(void *unused)
{
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        atomic_store_explicit(&seen, sched_getcpu(), memory_order_relaxed);
        atomic_fetch_add_explicit(&counted, 1, memory_order_relaxed);
    }
    return unused;
}

static void *computes_unseen(void *unused)
{
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
    }
    return unused;
}

static void by_another(void)
{
    pthread_t thread = start(computes, NULL), others[3];
    for (int i = 0; i < 3; i++)
        others[i] = start(computes_unseen, NULL);
    int wrong = 0;
    for (int i = 0; i < 4; i++) {
        int wanted = processors[i & 1];
        MUST(pthread_setaffinity_np(thread, sizeof(cpu_set_t), &masks[i & 1]));
        wrong |= !has(thread, &masks[i & 1]) << 1;
        /* It goes there as soon as it runs. */
        while (atomic_load(&seen) != wanted)
            sched_yield();
        for (int looks = 0; looks < 100; looks++) {
            int before = atomic_load(&counted);
            while (atomic_load(&counted) == before)
                sched_yield();
            wrong |= atomic_load(&seen) != wanted;
        }
    }
    MUST(pthread_setaffinity_np(thread, sizeof all, &all));
    wrong |= !has(thread, &all) << 2;
    atomic_store(&stop, 1);
    join(thread);
    for (int i = 0; i < 3; i++)
        join(others[i]);
    check("affinity_by_another", wrong == 0, "%x", wrong);
}

static pid_t id_of_waiting;

static void *waits(void *processor)
{
    id_of_waiting = (pid_t)syscall(SYS_gettid);
    sem_post(&told);
    while (sem_wait(&posted) != 0) {
    }
    return (void *)(long)stays_on(*(int *)processor);
}

static void *begins(void *processor) { return (void *)(long)stays_on(*(int *)processor); }

static void *makes_one(void *unused)
{
    MUST(sched_setaffinity(0, sizeof(cpu_set_t), &masks[1]));
    long is_there = (long)join(start(begins, &processors[1]));
    /* Back to all: the next one is not bound to one processor. */
    MUST(sched_setaffinity(0, sizeof all, &all));
    pthread_t next = start(waits, &processors[0]);
    while (sem_wait(&told) != 0) {
    }
    is_there &= has(next, &all);
    MUST(pthread_setaffinity_np(next, sizeof(cpu_set_t), &masks[0]));
    sem_post(&posted);
    return (void *)(is_there & (long)join(next) & (unused == NULL));
}

static void on_signal(int unused)
{
    (void)unused;
    if (sched_setaffinity(0, sizeof(cpu_set_t), &masks[1]) != 0)
        abort();
}

static void *in_handler(void *unused)
{
    MUST(raise(SIGUSR1));
    return (void *)(long)(stays_on(processors[1]) && has(pthread_self(), &masks[1]) && unused == NULL);
}

static void *ends(void *id)
{
    *(pid_t *)id = (pid_t)syscall(SYS_gettid);
    return NULL;
}

static void wrong_masks(void)
{
    cpu_set_t none, beyond;
    pid_t ended = 0;
    CPU_ZERO(&none);
    CPU_ZERO(&beyond);
    CPU_SET(CPU_SETSIZE - 1, &beyond);
    join(start(ends, &ended));
    errno = 0;
    check("affinity_to_none", sched_setaffinity(0, sizeof none, &none) == -1 && errno == EINVAL, "errno %d", errno);
    errno = 0;
    check("affinity_to_absent", sched_setaffinity(0, sizeof beyond, &beyond) == -1 && errno == EINVAL, "errno %d", errno);
    errno = 0;
    check("affinity_of_ended", sched_setaffinity(ended, sizeof all, &all) == -1 && errno == ESRCH, "errno %d", errno);
    errno = 0;
    check("affinity_from_nowhere", syscall(SYS_sched_setaffinity, 0, sizeof all, 8) == -1 && errno == EFAULT,
          "errno %d", errno);
    /* A mask may be shorter than a word. */
    unsigned short few = 0;
    memcpy(&few, &all, sizeof few);
    check("affinity_in_two_bytes", syscall(SYS_sched_setaffinity, 0, sizeof few, &few) == 0, "errno %d", errno);
    MUST(sched_setaffinity(0, sizeof all, &all));
}

/* What the kernel itself says of rooms of these sizes: how much of one a mask takes, or why it takes none. */
static const size_t sizes[] = {0, 1, 4, 8, 12, 16, 32, 64, 128, 1024};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void look_at_sizes(long *found)
{
    static unsigned long room[1024 / sizeof(long)];
    for (int i = 0; i < SIZES; i++) {
        memset(room, 0xff, sizeof room);
        found[i] = syscall(SYS_sched_getaffinity, 0, sizes[i], room);
        if (found[i] < 0)
            found[i] = -errno;
        else if (memcmp(room, &all, found[i] < (long)sizeof all ? found[i] : (long)sizeof all) != 0)
            found[i] = 0;
    }
}

static void rooms_are_as_the_kernel_says(const long *before)
{
    long found[SIZES];
    look_at_sizes(found);
    for (int i = 0; i < SIZES; i++)
        check("affinity_into_a_room", found[i] == before[i], "%zu bytes: %ld, before threads %ld", sizes[i], found[i],
              before[i]);
    errno = 0;
    check("affinity_into_nowhere", syscall(SYS_sched_getaffinity, 0, 128, 8) == -1 && errno == EFAULT, "errno %d",
          errno);
}

int main(void)
{
    long before[SIZES];
    MUST(sched_getaffinity(0, sizeof all, &all));
    look_at_sizes(before);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all)) {
            if (CPU_COUNT(&masks[0]) == 0) {
                CPU_SET(i, &masks[0]);
                processors[0] = i;
            }
            processors[1] = i;
        }
    CPU_SET(processors[1], &masks[1]);
    MUST(sem_init(&posted, 0, 0));
    MUST(sem_init(&told, 0, 0));
    signal(SIGUSR1, on_signal);
    long wrong = (long)join(start(by_itself, NULL));
    check("affinity_by_itself", wrong == 0, "%lx", wrong);
    by_another();
    for (int i = 0; i < 2; i++) {
        pthread_t thread = start(waits, &processors[i]);
        while (sem_wait(&told) != 0) {
        }
        settle();
        MUST(i == 0 ? pthread_setaffinity_np(thread, sizeof(cpu_set_t), &masks[i])
                    : sched_setaffinity(id_of_waiting, sizeof(cpu_set_t), &masks[i]));
        sem_post(&posted);
        check("affinity_of_one_that_waits", join(thread) != NULL, "%d", i);
        pthread_attr_t attributes;
        MUST(pthread_attr_init(&attributes));
        MUST(pthread_attr_setaffinity_np(&attributes, sizeof(cpu_set_t), &masks[i]));
        MUST(pthread_create(&thread, &attributes, begins, &processors[i]));
        check("affinity_by_attributes", join(thread) != NULL, "%d", i);
    }
    check("affinity_is_inherited", join(start(makes_one, NULL)) != NULL, "not");
    check("affinity_in_a_handler", join(start(in_handler, NULL)) != NULL, "not");
    wrong_masks();
    rooms_are_as_the_kernel_says(before);
    check("affinity_of_the_first_thread", has(pthread_self(), &all), "not all");
    MUST(sched_setaffinity(0, sizeof(cpu_set_t), &masks[1]));
    check("affinity_of_main", stays_on(processors[1]) && join(start(begins, &processors[1])) != NULL, "not");
    return verdict();
}
