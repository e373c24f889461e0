/* Locks, conditions, semaphores, barriers, once and keys: between threads of Upcall and of pthreads, on one object. */
#include <signal.h>
#include <stdatomic.h>

#include "check.h"

enum { THREADS = 12, ROUNDS = 300 };

/* Runs it in THREADS threads, every third of pthreads, and waits for them. */
static void in_threads(void *(*body)(void *), void *argument)
{
    upcall_thread_t ours[THREADS];
    pthread_t plain[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (i % 3)
            OK(upcall_thread_create(&ours[i], NULL, body, argument));
        else
            OK(pthread_create(&plain[i], NULL, body, argument));
    for (int i = 0; i < THREADS; i++)
        if (i % 3)
            OK(upcall_thread_join(ours[i], NULL));
        else
            OK(pthread_join(plain[i], NULL));
}

static upcall_mutex_t mutex = UPCALL_MUTEX_INITIALIZER;
static pthread_mutex_t plain_mutex = PTHREAD_MUTEX_INITIALIZER;
static long count, plain_count;

static void *counts(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 4 == 3) {
            struct timespec deadline = in_ns(100000 * MS);
            OK(upcall_mutex_timedlock(&mutex, &deadline));
        } else {
            OK(upcall_mutex_lock(&mutex));
        }
        long before = count;
        if (i % 64 == 0)
            upcall_thread_yield();
        count = before + 1;
        OK(upcall_mutex_unlock(&mutex));
        OK(pthread_mutex_lock(&plain_mutex));
        before = plain_count;
        if (i % 64 == 0)
            upcall_thread_yield();
        plain_count = before + 1;
        OK(pthread_mutex_unlock(&plain_mutex));
    }
    return NULL;
}

static void *is_refused(void *unused)
{
    struct timespec deadline = in_ns(2 * MS);
    (void)unused;
    ANSWERS(EBUSY, upcall_mutex_trylock(&mutex));
    ANSWERS(ETIMEDOUT, upcall_mutex_timedlock(&mutex, &deadline));
    ANSWERS(ETIMEDOUT, upcall_mutex_timedlock(&mutex, &deadline));
    return NULL;
}

static void mutexes(void)
{
    in_threads(counts, NULL);
    CHECK(count == THREADS * ROUNDS && plain_count == count);
    ANSWERS(EPERM, upcall_mutex_unlock(&mutex));
    OK(upcall_mutex_trylock(&mutex));
    ANSWERS(EBUSY, upcall_mutex_destroy(&mutex));
    in_threads(is_refused, NULL);
    OK(upcall_mutex_unlock(&mutex));
    OK(upcall_mutex_destroy(&mutex));
    OK(upcall_mutex_init(&mutex));
    ANSWERS(EINVAL, upcall_mutex_init(NULL));
    ANSWERS(EINVAL, upcall_mutex_lock(NULL));
    ANSWERS(EINVAL, upcall_mutex_unlock(NULL));
    ANSWERS(EINVAL, upcall_mutex_timedlock(&mutex, NULL));
    OK(upcall_mutex_trylock(&mutex));
    OK(upcall_mutex_unlock(&mutex));
}

static upcall_cond_t changed = UPCALL_COND_INITIALIZER;
static int turn, arrived;

static void *takes_turns(void *unused)
{
    (void)unused;
    OK(upcall_mutex_lock(&mutex));
    int own = arrived++;
    for (int i = 0; i < 50; i++) {
        while (turn % THREADS != own) {
            if (i % 2) {
                struct timespec deadline = in_ns(i * 100000);
                int answer = upcall_cond_timedwait(&changed, &mutex, &deadline);
                CHECK(answer == 0 || answer == ETIMEDOUT);
            } else {
                OK(upcall_cond_wait(&changed, &mutex));
            }
        }
        turn++;
        OK(upcall_cond_broadcast(&changed));
    }
    OK(upcall_mutex_unlock(&mutex));
    return NULL;
}

static void conditions(void)
{
    in_threads(takes_turns, NULL);
    CHECK(turn == THREADS * 50);
    struct timespec deadline = in_ns(2 * MS), over = { 0, 0 };
    ANSWERS(EPERM, upcall_cond_wait(&changed, &mutex));
    ANSWERS(EPERM, upcall_cond_timedwait(&changed, &mutex, &deadline));
    OK(upcall_mutex_lock(&mutex));
    int answer;
    while ((answer = upcall_cond_timedwait(&changed, &mutex, &deadline)) == 0)
        ;
    CHECK(answer == ETIMEDOUT);
    ANSWERS(ETIMEDOUT, upcall_cond_timedwait(&changed, &mutex, &over));
    ANSWERS(EINVAL, upcall_cond_timedwait(&changed, &mutex, NULL));
    ANSWERS(EINVAL, upcall_cond_wait(&changed, NULL));
    /* It was taken again, each time. */
    OK(upcall_mutex_unlock(&mutex));
    OK(upcall_cond_signal(&changed));
    OK(upcall_cond_destroy(&changed));
    OK(upcall_cond_init(&changed));
}

static upcall_rwlock_t rwlock = UPCALL_RWLOCK_INITIALIZER;
static long written[2];
static atomic_int readers, most_readers;

static void *reads_and_writes(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec deadline = in_ns(100000 * MS);
        if (i % 8 == 0) {
            if (i % 16)
                OK(upcall_rwlock_timedwrlock(&rwlock, &deadline));
            else
                OK(upcall_rwlock_wrlock(&rwlock));
            CHECK(readers == 0);
            written[0]++;
            upcall_thread_yield();
            written[1]++;
        } else {
            if (i % 3)
                OK(upcall_rwlock_timedrdlock(&rwlock, &deadline));
            else
                OK(upcall_rwlock_rdlock(&rwlock));
            int inside = ++readers;
            if (inside > most_readers)
                most_readers = inside;
            CHECK(written[0] == written[1]);
            if (i % 5 == 0)
                upcall_thread_yield();
            readers--;
        }
        OK(upcall_rwlock_unlock(&rwlock));
    }
    return NULL;
}

static void *cannot_read(void *unused)
{
    struct timespec deadline = in_ns(MS);
    (void)unused;
    ANSWERS(EBUSY, upcall_rwlock_tryrdlock(&rwlock));
    ANSWERS(ETIMEDOUT, upcall_rwlock_timedrdlock(&rwlock, &deadline));
    return NULL;
}

static void *cannot_write(void *unused)
{
    struct timespec deadline = in_ns(MS);
    (void)unused;
    ANSWERS(EBUSY, upcall_rwlock_trywrlock(&rwlock));
    ANSWERS(ETIMEDOUT, upcall_rwlock_timedwrlock(&rwlock, &deadline));
    return NULL;
}

static void rwlocks(void)
{
    in_threads(reads_and_writes, NULL);
    CHECK(written[0] == THREADS * ((ROUNDS + 7) / 8) && written[1] == written[0]);
    ANSWERS(EPERM, upcall_rwlock_unlock(&rwlock));
    OK(upcall_rwlock_trywrlock(&rwlock));
    ANSWERS(EBUSY, upcall_rwlock_destroy(&rwlock));
    in_threads(cannot_read, NULL);
    OK(upcall_rwlock_unlock(&rwlock));
    OK(upcall_rwlock_tryrdlock(&rwlock));
    ANSWERS(EBUSY, upcall_rwlock_destroy(&rwlock));
    in_threads(cannot_write, NULL);
    OK(upcall_rwlock_unlock(&rwlock));
    OK(upcall_rwlock_destroy(&rwlock));
    OK(upcall_rwlock_init(&rwlock));
    ANSWERS(EINVAL, upcall_rwlock_rdlock(NULL));
}

static upcall_semaphore_t permits = UPCALL_SEMAPHORE_INITIALIZER(3);
static atomic_int inside;

static void *takes_permits(void *unused)
{
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct timespec deadline = in_ns(100000 * MS);
        if (i % 2)
            OK(upcall_semaphore_wait(&permits));
        else
            OK(upcall_semaphore_timedwait(&permits, &deadline));
        CHECK(++inside <= 3);
        if (i % 16 == 0)
            upcall_thread_yield();
        inside--;
        OK(upcall_semaphore_post(&permits));
    }
    return NULL;
}

static void semaphores(void)
{
    in_threads(takes_permits, NULL);
    uint32_t value;
    OK(upcall_semaphore_getvalue(&permits, &value));
    CHECK(value == 3);
    for (int i = 0; i < 3; i++)
        OK(upcall_semaphore_trywait(&permits));
    ANSWERS(EAGAIN, upcall_semaphore_trywait(&permits));
    struct timespec deadline = in_ns(MS);
    ANSWERS(ETIMEDOUT, upcall_semaphore_timedwait(&permits, &deadline));
    OK(upcall_semaphore_destroy(&permits));
    OK(upcall_semaphore_init(&permits, UINT32_MAX));
    ANSWERS(EOVERFLOW, upcall_semaphore_post(&permits));
    OK(upcall_semaphore_wait(&permits));
    OK(upcall_semaphore_post(&permits));
    OK(upcall_semaphore_getvalue(&permits, &value));
    CHECK(value == UINT32_MAX);
    ANSWERS(EINVAL, upcall_semaphore_wait(NULL));
}

static upcall_barrier_t barrier;
static atomic_int met, serial;

static void *meets(void *unused)
{
    (void)unused;
    for (int i = 1; i <= 100; i++) {
        met++;
        int answer = upcall_barrier_wait(&barrier);
        CHECK(answer == 0 || answer == UPCALL_BARRIER_SERIAL_THREAD);
        serial += answer != 0;
        CHECK(met >= i * THREADS && met <= (i + 1) * THREADS);
        CHECK(upcall_barrier_wait(&barrier) <= 0);
    }
    return NULL;
}

static void barriers(void)
{
    ANSWERS(EINVAL, upcall_barrier_wait(&barrier));
    ANSWERS(EINVAL, upcall_barrier_destroy(&barrier));
    ANSWERS(EINVAL, upcall_barrier_init(&barrier, 0));
    OK(upcall_barrier_init(&barrier, THREADS));
    in_threads(meets, NULL);
    CHECK(serial == 100);
    OK(upcall_barrier_destroy(&barrier));
    /* It hung: it met nobody, or the next ones that came. */
    ANSWERS(EINVAL, upcall_barrier_wait(&barrier));
    ANSWERS(EINVAL, upcall_barrier_destroy(&barrier));
}

static upcall_once_t once = UPCALL_ONCE_INITIALIZER;
static atomic_int tries, successes;

static int fails_thrice(void *argument)
{
    CHECK(argument == &once);
    int number = ++tries;
    upcall_thread_yield();
    return number <= 3 ? EIO : 0;
}

static void *comes(void *unused)
{
    (void)unused;
    int answer = upcall_once(&once, fails_thrice, &once);
    CHECK(answer == 0 || answer == EIO);
    successes += answer == 0;
    return NULL;
}

static void onces(void)
{
    in_threads(comes, NULL);
    CHECK(tries == 4 && successes == THREADS - 3);
    ANSWERS(EINVAL, upcall_once(&once, NULL, NULL));
    ANSWERS(EINVAL, upcall_once(NULL, fails_thrice, NULL));
}

static upcall_key_t key, again;
static atomic_int destroyed, destroyed_again;

static void destroys(void *value)
{
    CHECK(value && upcall_getspecific(key) == NULL);
    destroyed++;
    OK(upcall_setspecific(again, value));
}

static void destroys_again(void *value)
{
    CHECK(value);
    /* Sets it for ever: after some rounds nobody looks. */
    destroyed_again++;
    OK(upcall_setspecific(again, value));
}

static void *keeps(void *argument)
{
    int own;
    CHECK(upcall_getspecific(key) == NULL);
    OK(upcall_setspecific(key, argument));
    OK(upcall_setspecific(key, &own));
    upcall_thread_yield();
    CHECK(upcall_getspecific(key) == &own);
    return NULL;
}

static void *keeps_and_exits(void *argument)
{
    OK(upcall_setspecific(key, argument));
    upcall_thread_exit(NULL);
}

static void *sees_nothing(void *argument)
{
    CHECK(upcall_getspecific(*(upcall_key_t *)argument) == NULL);
    return NULL;
}

static void keys(void)
{
    OK(upcall_key_create(&key, destroys));
    OK(upcall_key_create(&again, destroys_again));
    in_threads(keeps, &key);
    CHECK(destroyed == THREADS);
    CHECK(destroyed_again >= 3 * THREADS && destroyed_again <= 4 * THREADS);
    in_threads(keeps_and_exits, &key);
    CHECK(destroyed == 2 * THREADS);
    /* A later key at the same place has no values yet. */
    upcall_key_t old, new;
    OK(upcall_key_create(&old, NULL));
    OK(upcall_setspecific(old, &old));
    OK(upcall_key_delete(old));
    ANSWERS(EINVAL, upcall_key_delete(old));
    ANSWERS(EINVAL, upcall_setspecific(old, &old));
    OK(upcall_key_create(&new, destroys));
    CHECK(new == old && upcall_getspecific(new) == NULL);
    in_threads(sees_nothing, &new);
    OK(upcall_key_delete(new));
    CHECK(upcall_getspecific(UPCALL_KEYS_MAX) == NULL);
    ANSWERS(EINVAL, upcall_setspecific(UPCALL_KEYS_MAX, NULL));
    ANSWERS(EINVAL, upcall_key_create(NULL, NULL));
    upcall_key_t all[UPCALL_KEYS_MAX];
    for (int i = 0; i < UPCALL_KEYS_MAX - 2; i++)
        OK(upcall_key_create(&all[i], NULL));
    ANSWERS(EAGAIN, upcall_key_create(&new, NULL));
    OK(upcall_setspecific(all[UPCALL_KEYS_MAX - 3], all));
    CHECK(upcall_getspecific(all[UPCALL_KEYS_MAX - 3]) == all);
    for (int i = 0; i < UPCALL_KEYS_MAX - 2; i++)
        OK(upcall_key_delete(all[i]));
}

static upcall_semaphore_t posted = UPCALL_SEMAPHORE_INITIALIZER(0);
static pthread_t receiver;

static void handler(int signal)
{
    (void)signal;
    OK(upcall_semaphore_post(&posted));
}

static void *kills(void *unused)
{
    (void)unused;
    for (int i = 0; i < 40; i++) {
        OK(pthread_kill(receiver, SIGUSR1));
        upcall_thread_yield();
    }
    return NULL;
}

/* Posted in handlers, of a thread that is anywhere in these functions itself. Signals that are pending count once. */
static void signals(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    upcall_thread_t killer;
    uint32_t value;
    sigaction(SIGUSR1, &action, NULL);
    receiver = pthread_self();
    OK(upcall_thread_create(&killer, NULL, kills, NULL));
    int answer;
    while ((answer = upcall_thread_tryjoin(killer, NULL)) == EBUSY) {
        OK(upcall_mutex_lock(&mutex));
        OK(upcall_semaphore_post(&posted));
        OK(upcall_mutex_unlock(&mutex));
        OK(upcall_semaphore_wait(&posted));
        upcall_thread_yield();
    }
    OK(answer);
    OK(upcall_semaphore_getvalue(&posted, &value));
    CHECK(value >= 1 && value <= 40);
}

int main(void)
{
    start_as_told();
    signals();
    mutexes();
    conditions();
    rwlocks();
    semaphores();
    barriers();
    onces();
    keys();
    puts("ok");
    return 0;
}
