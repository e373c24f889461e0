/* Changes of the process's identity, one right after the other, are made once each and by all threads: an effective
 * id that comes back does not take the real one along. Each in a child, as root; elsewhere there is nothing to change. */
#include "case.h"
#include <grp.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOBODY 65534
#define THREADS 4
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int over, wrong;
static atomic_int expected[3];

static int is_expected(void)
{
    int ids[3];
    syscall(SYS_getresuid, &ids[0], &ids[1], &ids[2]);
    for (int i = 0; i < 3; i++)
        if (ids[i] != atomic_load(&expected[i]))
            return 0;
    return 1;
}

static void *waits(void *unused)
{
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&wrong, !is_expected());
    pthread_mutex_unlock(&lock);
    return unused;
}

static void *computes(void *unused)
{
    while (!atomic_load(&over))
        ;
    atomic_fetch_add(&wrong, !is_expected());
    return unused;
}

static int change(int kind)
{
    pthread_t threads[THREADS + 1];
    pthread_mutex_lock(&lock);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(waits, NULL);
    threads[THREADS] = start(computes, NULL);
    int real = kind == 2 ? 0 : NOBODY, effective = kind == 2 ? NOBODY : 0, saved = kind == 2 ? NOBODY : 0;
    int failed = 0;
    switch (kind) {
    case 0:
        failed = setresuid(NOBODY, NOBODY, -1) | setuid(0);
        break;
    case 1: /* Refused, and nobody is the other one. */
        failed = setresuid(NOBODY, NOBODY, 0) | (setuid(17) == 0) | setuid(0);
        break;
    default: /* Each the other's. */
        failed = setresuid(NOBODY, 0, -1) | setreuid(-1, NOBODY) | setresuid(0, -1, NOBODY);
    }
    atomic_store(&expected[0], real);
    atomic_store(&expected[1], effective);
    atomic_store(&expected[2], saved);
    atomic_store(&over, 1);
    pthread_mutex_unlock(&lock);
    failed |= !is_expected();
    for (int i = 0; i <= THREADS; i++)
        join(threads[i]);
    return failed ? 2 : atomic_load(&wrong) != 0;
}

int main(void)
{
    int bad = 0, at = -1;
    if (getuid() != 0) {
        check("identity_changes", 1, "not root");
        return verdict();
    }
    for (int i = 0; i < 15; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(change(i % 3));
        int status = -1;
        waitpid(child, &status, 0);
        if (status != 0) {
            bad++;
            at = i % 3;
        }
    }
    check("identity_changes", bad == 0, "%d of 15 have another identity, the last by change %d", bad, at);
    return verdict();
}
