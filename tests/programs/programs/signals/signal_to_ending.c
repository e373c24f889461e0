/* Signals by id to threads that end at that moment, while others begin: none reaches another thread
 * than the one it was sent to. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define LANES 4
#define ROUNDS 1500
/* A thread that got them without end would never come to its own. */
#define SIGNALS_EACH 4
static atomic_int ids[LANES], wrong, stop;

static void handler(int signal, siginfo_t *information, void *context)
{
    (void)signal;
    (void)context;
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
    int last[LANES] = {0}, sent[LANES] = {0};
    while (!atomic_load(&stop))
        for (int lane = 0; lane < LANES; lane++) {
            int id = atomic_load(&ids[lane]);
            if (id != last[lane]) {
                last[lane] = id;
                sent[lane] = 0;
            }
            if (id == 0 || sent[lane]++ >= SIGNALS_EACH) {
                sched_yield();
                continue;
            }
            siginfo_t information;
            memset(&information, 0, sizeof information);
            information.si_signo = SIGRTMIN;
            information.si_code = SI_QUEUE;
            information.si_pid = getpid();
            information.si_value.sival_int = id;
            syscall(SYS_rt_tgsigqueueinfo, getpid(), id, SIGRTMIN, &information);
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
