/* The processor time of a thread never goes back, whoever asks: while it starts and stops on one virtual processor and
 * another, and when it becomes a thread that the kernel counts by itself. The child of a fork begins at nothing, and goes on. */
#include "case.h"
#include <sched.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define ROUNDS 100000
/* The child has used next to nothing. */
#define NOTHING 50000000
#define SOME 20000000

struct watched {
    pthread_t thread;
    _Atomic long rounds;
    int binds;
};

static atomic_int is_over;

static void *starts_and_stops(void *own)
{
    struct watched *watched = own;
    while (!is_over) {
        /* With a kernel thread of its own it would wait for the others' slices. */
        if (!watched->binds || watched->rounds < ROUNDS / 2)
            sched_yield();
        if (++watched->rounds == ROUNDS / 2 && watched->binds)
            MUST(prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0));
    }
    return NULL;
}

/* How often the clock went back, and how far at most. */
static void watch(const char *name, struct watched *watched)
{
    clockid_t clock;
    MUST(pthread_getcpuclockid(watched->thread, &clock));
    long long before = now(clock), most = 0;
    long back = 0;
    for (long reads = 0; watched->rounds < ROUNDS; reads++) {
        /* It may wait for this processor. */
        if (reads % 16 == 0)
            sched_yield();
        long long time = now(clock);
        if (time < before) {
            back++;
            most = before - time > most ? before - time : most;
        }
        before = time;
    }
    check(name, back == 0, "it went back %ld times, %lld ns at most", back, most);
}

static void *forks(void *unused)
{
    while (now(CLOCK_THREAD_CPUTIME_ID) < 2 * NOTHING) {
    }
    pid_t child = fork();
    if (child == 0) {
        case_failures = 0;
        long long first = now(CLOCK_THREAD_CPUTIME_ID), last = first;
        while (last - first < SOME && now(CLOCK_PROCESS_CPUTIME_ID) < 100LL * SOME)
            last = now(CLOCK_THREAD_CPUTIME_ID);
        check("child", first < NOTHING && last - first >= SOME, "%lld, then %lld", first, last);
        _exit(verdict());
    }
    int status;
    while (waitpid(child, &status, 0) < 0) {
    }
    check("child_ends", status == 0, "status %d", status);
    return unused;
}

int main(void)
{
    struct watched stays = {0}, binds = {.binds = 1}, other = {0};
    struct watched *all[] = {&stays, &binds, &other};
    for (int i = 0; i < 3; i++)
        all[i]->thread = start(starts_and_stops, all[i]);
    watch("of_one_that_stays", &stays);
    watch("of_one_that_is_bound", &binds);
    is_over = 1;
    for (int i = 0; i < 3; i++)
        join(all[i]->thread);
    join(start(forks, NULL));
    return verdict();
}
