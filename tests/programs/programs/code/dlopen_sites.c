/* A library with system calls of its own is loaded while threads run, used by all of them, and
 * unloaded, several times: its calls and libc's meet on the same futexes. Its path is the argument. */
#include "case.h"
#include <dlfcn.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static void (*wait_for)(unsigned *, unsigned);
static long (*wake)(unsigned *, int);
static long (*rest)(long);
static long (*id)(void);
static unsigned turn, go;
static atomic_int wrong_id, bad_sleep, slept, rounds;
static sem_t woken_by_libc;

enum { THREADS = 6, ROUNDS = 50, LOADS = 5 };

static void *body(void *number)
{
    unsigned self = (unsigned)(long)number;
    wait_for(&go, 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned now_turn;
        while ((now_turn = __atomic_load_n(&turn, __ATOMIC_ACQUIRE)) % THREADS != self)
            wait_for(&turn, now_turn);
        if (id() != syscall(SYS_gettid))
            atomic_fetch_add(&wrong_id, 1);
        atomic_fetch_add(&rounds, 1);
        __atomic_fetch_add(&turn, 1, __ATOMIC_RELEASE);
        wake(&turn, THREADS);
    }
    if (rest(1000000) != 0)
        atomic_fetch_add(&bad_sleep, 1);
    atomic_fetch_add(&slept, 1);
    sem_post(&woken_by_libc);
    return NULL;
}

static void *counter(void *stop)
{
    while (!atomic_load((atomic_int *)stop))
        usleep(100);
    return NULL;
}

int main(int count, char **words)
{
    atomic_int stop = 0;
    int constructors = 0, closed = 0;
    pthread_t other = start(counter, &stop);
    MUST(sem_init(&woken_by_libc, 0, 0));
    for (int load = 0; load < LOADS; load++) {
        void *library = dlopen(count > 1 ? words[1] : "plugin_sites.so", RTLD_NOW);
        if (library == NULL) {
            printf("FAIL dlopen: %s\n", dlerror());
            return 1;
        }
        wait_for = (void (*)(unsigned *, unsigned))dlsym(library, "plugin_wait");
        wake = (long (*)(unsigned *, int))dlsym(library, "plugin_wake");
        rest = (long (*)(long))dlsym(library, "plugin_sleep");
        id = (long (*)(void))dlsym(library, "plugin_gettid");
        constructors += ((long (*)(void))dlsym(library, "plugin_constructor"))() == gettid();
        go = turn = 0;
        pthread_t threads[THREADS];
        for (long i = 0; i < THREADS; i++)
            threads[i] = start(body, (void *)i);
        settle();
        __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
        /* By libc's instruction what waits in the library's. */
        syscall(SYS_futex, &go, 129, THREADS, NULL, NULL, 0);
        for (int i = 0; i < THREADS; i++)
            MUST(sem_wait(&woken_by_libc));
        for (int i = 0; i < THREADS; i++)
            join(threads[i]);
        closed += dlclose(library) == 0;
    }
    atomic_store(&stop, 1);
    join(other);
    check("constructors", constructors == LOADS, "%d", constructors);
    check("ids", wrong_id == 0, "%d", wrong_id);
    check("rounds", rounds == LOADS * THREADS * ROUNDS, "%d", rounds);
    check("sleeps", bad_sleep == 0 && slept == LOADS * THREADS, "%d, %d", bad_sleep, slept);
    check("closed", closed == LOADS, "%d", closed);
    return verdict();
}
