/* A child that wants a signal when its parent ends gets none while the thread lives that has made it,
 * wherever that thread migrates meanwhile: by the handler of a signal that comes as it forks. */
#include "case.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { FORKERS = 4, FORKS = 150, BLOCKED = 60 };

static int gate[2];
static char path[] = "fork_migrating.XXXXXX";
static int locked;
static atomic_int waiting, done, hold, handled[FORKERS];
static pthread_t threads[FORKERS];
static _Thread_local int own;

static void give_way(int signal)
{
    (void)signal;
    sched_yield();
    atomic_store(&handled[own], 1);
}

/* One signal after the other, so that forks get on beside them. */
static void *sends(void *unused)
{
    while (atomic_load(&done) < FORKERS) {
        for (int i = 0; i < FORKERS; i++)
            if (atomic_exchange(&handled[i], 0))
                MUST(pthread_kill(threads[i], SIGUSR1));
        sched_yield();
    }
    return unused;
}

static void *forks(void *number)
{
    own = (int)(long)number;
    atomic_store(&handled[own], 1);
    pid_t *children = calloc(FORKS, sizeof *children);
    for (int i = 0; i < FORKS; i++) {
        char byte;
        children[i] = fork();
        if (children[i] == 0) {
            signal(SIGUSR1, SIG_DFL);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(gate[1]);
            _exit(read(gate[0], &byte, 1) != 0);
        }
    }
    atomic_fetch_add(&done, 1);
    while (!atomic_load(&hold))
        usleep(1000);
    long lost = 0;
    for (int i = 0; i < FORKS; i++) {
        int status = -1;
        lost += waitpid(children[i], &status, 0) != children[i] || status != 0;
    }
    free(children);
    return (void *)lost;
}

/* Blocks its activation: locks of files are not for the poller. */
static void *blocks(void *unused)
{
    int own = open(path, O_RDWR);
    atomic_fetch_add(&waiting, 1);
    while (flock(own, LOCK_SH) != 0 && errno == EINTR) {
    }
    /* Children have copies of the descriptor. */
    flock(own, LOCK_UN);
    close(own);
    return unused;
}

/* Many are blocked at once and come back: activations end that are not needed any more. */
static void crowd(void)
{
    static pthread_t blocked[BLOCKED];
    waiting = 0;
    MUST(flock(locked, LOCK_EX));
    for (int i = 0; i < BLOCKED; i++)
        blocked[i] = start(blocks, NULL);
    while (atomic_load(&waiting) < BLOCKED)
        sched_yield();
    settle();
    MUST(flock(locked, LOCK_UN));
    for (int i = 0; i < BLOCKED; i++)
        join(blocked[i]);
    settle();
}

int main(void)
{
    struct sigaction action = {.sa_handler = give_way, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(pipe(gate));
    locked = mkstemp(path);
    MUST(locked < 0);
    for (long i = 0; i < FORKERS; i++)
        threads[i] = start(forks, (void *)i);
    pthread_t sender = start(sends, NULL);
    while (atomic_load(&done) < FORKERS)
        crowd();
    join(sender);
    crowd();
    crowd();
    atomic_store(&hold, 1);
    close(gate[1]);
    long lost = 0;
    for (int i = 0; i < FORKERS; i++)
        lost += (long)join(threads[i]);
    unlink(path);
    check("fork_migrating", lost == 0, "%ld children of %d were ended", lost, FORKERS * FORKS);
    return verdict();
}
