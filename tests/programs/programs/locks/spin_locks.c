/* libc's spin locks: they exclude and answer as natively, also where a lock is opened by another thread, by another function,
 * in the child of a fork or not at all. */
#include "case.h"
#include <dlfcn.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define THREADS 6
#define ROUNDS 20000

static pthread_spinlock_t outer, inner, first;
static long counted;
static atomic_int failed, turn, over;

/* Changes what is not atomic, in one lock or two, waits and sleeps with a lock. */
static void *count(void *unused)
{
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 3 == 0) {
            while (pthread_spin_trylock(&outer) != 0)
                continue;
        } else {
            pthread_spin_lock(&outer);
        }
        pthread_spin_lock(&inner);
        counted++;
        if (round % 4096 == 0)
            usleep(50);
        if (round % 4096 == 1)
            sched_yield();
        pthread_spin_unlock(&inner);
        if (pthread_spin_unlock(&outer) != 0)
            failed = 1;
    }
    return unused;
}

static void counts(const char *name)
{
    pthread_t threads[THREADS];
    counted = 0;
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(count, NULL);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    check(name, counted == THREADS * ROUNDS && !failed, "%ld of %d", counted, THREADS * ROUNDS);
}

static void *try_both(void *unused)
{
    (void)unused;
    errno = 77;
    long busy = pthread_spin_trylock(&outer), free = pthread_spin_trylock(&inner);
    long again = pthread_spin_trylock(&inner), opened = pthread_spin_unlock(&inner);
    return (void *)(long)(busy == EBUSY && free == 0 && again == EBUSY && opened == 0 && errno == 77);
}

/* One of two threads takes the lock, the other one opens it. */
static void *hand_over(void *opens)
{
    for (int round = 0; round < 300; round++) {
        while (turn % 2 != (opens != NULL))
            sched_yield();
        (opens != NULL ? pthread_spin_unlock : pthread_spin_lock)(&outer);
        turn++;
    }
    return NULL;
}

static void *keeps(void *lock)
{
    pthread_spin_lock(lock);
    pthread_spin_lock(&inner);
    return NULL;
}

static void *opens(void *lock) { return (void *)(long)pthread_spin_unlock(lock); }

/* A thread that has taken locks which others open, or takes none any more: others run beside it all the same. */
static void *spins(void *unused)
{
    pthread_spin_lock(&first);
    while (!over)
        continue;
    return unused;
}

static volatile sig_atomic_t answer = -1;

static void handler(int signal)
{
    (void)signal;
    answer = pthread_spin_trylock(&outer);
    pthread_spin_lock(&inner);
    pthread_spin_unlock(&inner);
}

/* Two processes and their threads take the same locks. */
struct shared {
    pthread_spinlock_t lock;
    long counted;
};

static void *count_shared(void *argument)
{
    struct shared *shared = argument;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_spin_lock(&shared->lock);
        shared->counted++;
        pthread_spin_unlock(&shared->lock);
    }
    return NULL;
}

static void count_twice(struct shared *shared)
{
    pthread_t other = start(count_shared, shared);
    count_shared(shared);
    join(other);
}

static int ends_well(pid_t child)
{
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int by_libc(const char *name, pthread_spinlock_t *lock)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    int (*function)(pthread_spinlock_t *) = (int (*)(pthread_spinlock_t *))dlsym(libc, name);
    if (function == NULL)
        function = (int (*)(pthread_spinlock_t *))dlsym(RTLD_DEFAULT, name);
    return function(lock);
}

int main(void)
{
    MUST(pthread_spin_init(&outer, PTHREAD_PROCESS_PRIVATE));
    MUST(pthread_spin_init(&inner, PTHREAD_PROCESS_PRIVATE));
    MUST(pthread_spin_init(&first, PTHREAD_PROCESS_PRIVATE));
    /* Before there are threads. */
    MUST(pthread_spin_lock(&outer));
    long tried = (long)join(start(try_both, NULL));
    MUST(pthread_spin_unlock(&outer));
    check("spin_trylock", tried == 1, "%ld", tried);
    counts("spin_locks");

    pthread_t one = start(hand_over, NULL), other = start(hand_over, "opens");
    join(one);
    join(other);
    check("spin_handed_over", turn == 600, "%d turns", turn);

    MUST(pthread_spin_lock(&outer));
    MUST(by_libc("pthread_spin_unlock", &outer));
    MUST(by_libc("pthread_spin_lock", &outer));
    MUST(by_libc("pthread_spin_lock", &inner));
    MUST(pthread_spin_unlock(&inner));
    MUST(pthread_spin_unlock(&outer));
    counts("spin_other_functions");

    for (int i = 0; i < 3; i++) {
        join(start(keeps, (void *)&outer));
        MUST((int)(long)join(start(opens, (void *)&outer)));
        MUST(pthread_spin_unlock(&inner));
    }
    counts("spin_kept_by_the_dead");

    signal(SIGUSR1, handler);
    MUST(pthread_spin_lock(&outer));
    MUST(raise(SIGUSR1));
    MUST(pthread_spin_unlock(&outer));
    check("spin_in_handler", answer == EBUSY, "%d", (int)answer);

    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(pthread_spin_init(&shared->lock, PTHREAD_PROCESS_SHARED));
    MUST(pthread_spin_lock(&outer));
    MUST(pthread_spin_lock(&shared->lock));
    pid_t child = fork();
    if (child == 0) {
        /* The child has a copy of the one lock, and opens it. The parent opens the other. */
        pthread_spin_unlock(&outer);
        count_twice(shared);
        counts("spin_child");
        _exit(failed);
    }
    MUST(pthread_spin_unlock(&shared->lock));
    count_twice(shared);
    int fine = ends_well(child);
    MUST(pthread_spin_unlock(&outer));
    check("spin_shared", fine && shared->counted == 4 * ROUNDS, "%ld of %d", shared->counted, 4 * ROUNDS);

    pthread_t spinner = start(spins, NULL);
    settle();
    counts("spin_beside_a_holder");
    over = 1;
    join(spinner);
    MUST(pthread_spin_destroy(&outer));
    return verdict();
}
