/* A library's constructor has made threads, which wait in every kind of way when main begins. The library is
 * linked, or loaded by the argument's name. */
#include "constructor_threads.h"
#include <dlfcn.h>
#include <signal.h>

static void *nothing(void *argument) { return argument; }

static void joined(struct shared *shared, int index, const char *name, long expected)
{
    void *result = NULL;
    int error = pthread_join(shared->threads[index], &result);
    check(name, error == 0 && (long)result == expected, "%d, %ld", error, (long)result);
}

int main(int count, char **arguments)
{
    void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : RTLD_DEFAULT;
    struct shared *shared = library == NULL && count > 1 ? NULL : dlsym(library, "shared");
    if (shared == NULL) {
        printf("FAIL no library: %s\n", dlerror());
        return 1;
    }
    pthread_t one;
    MUST(pthread_create(&one, NULL, nothing, NULL));
    MUST(pthread_join(one, NULL));

    MUST(pthread_mutex_lock(&shared->mutex));
    shared->rounds_there = 1;
    pthread_cond_signal(&shared->there);
    while (shared->rounds_back == 0) {
        pthread_cond_wait(&shared->back, &shared->mutex);
    }
    MUST(pthread_mutex_unlock(&shared->mutex));
    joined(shared, 0, "condition_variable_both_ways", 1);
    MUST(pthread_mutex_unlock(&shared->held));
    joined(shared, 1, "mutex", 2);
    MUST(sem_post(&shared->semaphore));
    joined(shared, 2, "semaphore", 3);
    MUST(write(shared->pipe[1], "\4", 1) != 1);
    joined(shared, 3, "pipe", 4);
    MUST(sem_wait(&shared->blocks));
    MUST(pthread_kill(shared->threads[4], SIGUSR1));
    joined(shared, 4, "signal", SIGUSR1);
    joined(shared, 5, "sleep", 6);
    __atomic_store_n(&shared->stop, 1, __ATOMIC_RELEASE);
    joined(shared, 6, "computing", 7);
    MUST(pthread_cancel(shared->threads[7]));
    joined(shared, 7, "cancelled_in_pause", (long)PTHREAD_CANCELED);
    if (verdict() == 0) {
        /* The last word: the default action of SIGTERM for a process with threads in the kernel. */
        kill(getpid(), SIGTERM);
        pause();
    }
    return verdict();
}
