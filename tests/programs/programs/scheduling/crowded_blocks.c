/* A hog of another process keeps the one processor busy, while threads block in the kernel all the
 * time and another computes: everybody finishes a bounded amount of work. */
#include "case.h"
#include <sched.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/wait.h>

enum { BLOCKERS = 4, BLOCKS = 60, ROUNDS = 60000000 };

static int semaphores;
static int blocked;

static void *block(void *unused)
{
    (void)unused;
    for (int turn = 0; turn < BLOCKS; turn++) {
        struct sembuf take = {0, -1, 0};
        struct timespec timeout = {0, 1000000};
        if (semtimedop(semaphores, &take, 1, &timeout) == -1 && errno == EAGAIN) {
            __atomic_fetch_add(&blocked, 1, __ATOMIC_RELAXED);
        }
        for (volatile int busy = 0; busy < 5000; busy++) {
        }
    }
    return NULL;
}

static void *compute(void *out)
{
    unsigned long state = 1;
    for (int round = 0; round < ROUNDS; round++) {
        state = state * 6364136223846793005UL + 1442695040888963407UL;
    }
    *(unsigned long *)out = state;
    return NULL;
}

int main(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    MUST(sched_setaffinity(0, sizeof one, &one));
    pid_t hog = fork();
    if (hog == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile unsigned long busy = 0;; busy++) {
        }
    }
    MUST(hog < 0);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    MUST(semaphores < 0);
    pthread_t threads[BLOCKERS], computing;
    unsigned long result = 0;
    for (int index = 0; index < BLOCKERS; index++) {
        MUST(pthread_create(&threads[index], NULL, block, NULL));
    }
    MUST(pthread_create(&computing, NULL, compute, &result));
    MUST(pthread_join(computing, NULL));
    for (int index = 0; index < BLOCKERS; index++) {
        MUST(pthread_join(threads[index], NULL));
    }
    MUST(kill(hog, SIGKILL));
    MUST(waitpid(hog, NULL, 0) != hog);
    MUST(semctl(semaphores, 0, IPC_RMID));
    check("every block ended by its timeout", blocked == BLOCKERS * BLOCKS, "%d", blocked);
    printf("ok computed_%lx\n", result);
    return verdict();
}
