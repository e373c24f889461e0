/* pthread_kill of a thread that sleeps: the handler runs on that thread and the sleep ends with
 * EINTR. The sender repeats the signal until the sleep has ended, since one that comes before the
 * sleep has begun interrupts nothing. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>

static atomic_int handled, strangers, ended;
static pthread_t target;

static void handler(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
    if (!pthread_equal(pthread_self(), target))
        atomic_fetch_add(&strangers, 1);
}

static void *sleeper(void *unused)
{
    (void)unused;
    target = pthread_self();
    struct timespec day = {86400, 0}, left = {0, 0};
    errno = 0;
    int result = nanosleep(&day, &left);
    int error = errno;
    atomic_store(&ended, 1);
    check("kill_parked_eintr", result == -1 && error == EINTR, "result %d, errno %d", result, error);
    check("kill_parked_rest", left.tv_sec > 80000 && left.tv_sec <= 86400, "%ld s left",
          (long)left.tv_sec);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread = start(sleeper, NULL);
    while (!atomic_load(&ended)) {
        settle();
        if (!atomic_load(&ended))
            pthread_kill(thread, SIGUSR1);
    }
    join(thread);
    check("kill_parked_thread", handled >= 1 && strangers == 0, "%d handled, %d on other threads",
          handled, strangers);
    return verdict();
}
