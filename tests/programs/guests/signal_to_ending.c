/* Signals by id to threads that end at that moment, while others begin: none reaches another thread
 * than the one it was sent to. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define LANES 4
#define ROUNDS 1500
static atomic_int ids[LANES], wrong, stop;
static atomic_long arrived;

static void handler(int signal, siginfo_t *information, void *context)
{
    (void)signal;
    (void)context;
    atomic_fetch_add(&arrived, 1);
    if (information->si_value.sival_int != (int)syscall(SYS_gettid))
        atomic_fetch_add(&wrong, 1);
}

static void *short_lived(void *lane)
{
    atomic_store((atomic_int *)lane, (int)syscall(SYS_gettid));
    return NULL;
}

static void *makes(void *lane)
{
    for (int i = 0; i < ROUNDS; i++)
        join(start(short_lived, lane));
    return NULL;
}

static void *sends(void *unused)
{
    while (!atomic_load(&stop))
        for (int lane = 0; lane < LANES; lane++) {
            int id = atomic_load(&ids[lane]);
            if (id == 0)
                continue;
            siginfo_t information;
            memset(&information, 0, sizeof information);
            information.si_signo = SIGRTMIN;
            information.si_code = SI_QUEUE;
            information.si_pid = getpid();
            information.si_value.sival_int = id;
            syscall(SYS_rt_tgsigqueueinfo, getpid(), id, SIGRTMIN, &information);
            if (atomic_load(&arrived) % 64 == 0)
                sched_yield();
        }
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(SIGRTMIN, &action, NULL));
    pthread_t makers[LANES], senders[2];
    for (int i = 0; i < 2; i++)
        senders[i] = start(sends, NULL);
    for (int i = 0; i < LANES; i++)
        makers[i] = start(makes, &ids[i]);
    for (int i = 0; i < LANES; i++)
        join(makers[i]);
    atomic_store(&stop, 1);
    for (int i = 0; i < 2; i++)
        join(senders[i]);
    check("signal_to_ending", wrong == 0, "%d reached another thread", wrong);
    return verdict();
}
