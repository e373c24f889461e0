/* Kernel threads and memory run out: pthread_create says EAGAIN or works, what was created runs,
 * blocks and ends, and afterwards the program goes on. */
#include "case.h"
#include <sys/ipc.h>
#include <sys/resource.h>
#include <sys/sem.h>

static int semaphores, ran;

static void *block(void *unused)
{
    (void)unused;
    struct sembuf take = {0, -1, 0};
    struct timespec timeout = {0, 2000000};
    for (int turn = 0; turn < 5; turn++) {
        semtimedop(semaphores, &take, 1, &timeout);
    }
    __atomic_fetch_add(&ran, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void round_of(const char *name, int wanted, size_t stack)
{
    pthread_t threads[400];
    pthread_attr_t attributes;
    int created = 0, refused = 0, other = 0;
    ran = 0;
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstacksize(&attributes, stack));
    for (int index = 0; index < wanted; index++) {
        int result = pthread_create(&threads[created], &attributes, block, NULL);
        created += result == 0;
        refused += result == EAGAIN;
        other += result != 0 && result != EAGAIN;
    }
    for (int index = 0; index < created; index++) {
        MUST(pthread_join(threads[index], NULL));
    }
    check(name, other == 0 && ran == created && created + refused == wanted,
          "created %d, ran %d, refused %d, other errors %d", created, ran, refused, other);
    MUST(pthread_attr_destroy(&attributes));
}

int main(void)
{
    semaphores = semget(IPC_PRIVATE, 1, 0666);
    MUST(semaphores < 0);
    round_of("without limits", 20, 1 << 16);
    /* 300 stacks of 64 MiB do not fit into 4 GiB. */
    struct rlimit before, memory = {4UL << 30, RLIM_INFINITY};
    MUST(getrlimit(RLIMIT_AS, &before));
    memory.rlim_max = before.rlim_max;
    MUST(setrlimit(RLIMIT_AS, &memory));
    round_of("out of memory for stacks", 300, 64 << 20);
    MUST(setrlimit(RLIMIT_AS, &before));
    /* Root is not held to the number of processes: become somebody who is. */
    if (geteuid() == 0) {
        MUST(setresgid(54321, 54321, 54321));
        MUST(setresuid(54321, 54321, 54321));
    }
    struct rlimit processes;
    MUST(getrlimit(RLIMIT_NPROC, &processes));
    processes.rlim_cur = 12;
    MUST(setrlimit(RLIMIT_NPROC, &processes));
    round_of("out of kernel threads", 40, 1 << 16);
    round_of("and again", 40, 1 << 16);
    semctl(semaphores, 0, IPC_RMID);
    return verdict();
}
