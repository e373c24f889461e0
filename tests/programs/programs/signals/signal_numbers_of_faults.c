/* Signals that somebody sends, of numbers that faults and the runtime use too, meet a thread wherever it is: in calls that
 * read its memory, that wait with a mask, and while all kernel threads are asked for something. None is lost. */
#include "case.h"
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>

enum { ROUNDS = 400 };

static const int sent[] = {SIGURG, SIGBUS, SIGSEGV, SIGSYS};
enum { SENT = sizeof sent / sizeof *sent };

static atomic_int got, over;

static void count(int signal) { (void)signal, atomic_fetch_add(&got, 1); }

static void *reads_memory(void *unused)
{
    sigset_t none, before;
    sigemptyset(&none);
    while (!atomic_load(&over)) {
        pthread_sigmask(SIG_BLOCK, &none, &before);
    }
    return unused;
}

static void *waits_with_mask(void *unused)
{
    sigset_t most;
    sigfillset(&most);
    struct timespec moment = {0, 1000};
    while (!atomic_load(&over)) {
        ppoll(NULL, 0, &moment, &most);
    }
    return unused;
}

static void *disturbs(void *unused)
{
    while (!atomic_load(&over)) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        sched_yield();
    }
    return unused;
}

static void one(const char *name, void *(*body)(void *))
{
    atomic_store(&over, 0);
    pthread_t thread = start(body, NULL), other = start(disturbs, NULL);
    int more = 0;
    for (int i = 0; i < ROUNDS; i++) {
        atomic_store(&got, 0);
        for (int j = 0; j < SENT; j++) {
            MUST(pthread_kill(thread, sent[j]));
        }
        /* A lost one is waited for without end. */
        while (atomic_load(&got) < SENT) {
            sched_yield();
        }
        more += atomic_load(&got) > SENT;
    }
    atomic_store(&over, 1);
    join(thread);
    join(other);
    check(name, more == 0, "more than sent %d times", more);
}

int main(void)
{
    struct sigaction action = {.sa_handler = count};
    for (int i = 0; i < SENT; i++) {
        MUST(sigaction(sent[i], &action, NULL));
    }
    one("reads memory", reads_memory);
    one("waits with a mask", waits_with_mask);
    return verdict();
}
