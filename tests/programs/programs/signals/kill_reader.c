/* A signal to a thread in read: EINTR without SA_RESTART; with it the read goes on and delivers
 * the byte that comes later. */
#include "case.h"
#include <signal.h>
#include <stdatomic.h>

static int ends[2];
static atomic_int handled, ended;
static int result, error;
static char byte;

static void handler(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static void *reader(void *unused)
{
    (void)unused;
    errno = 0;
    result = read(ends[0], &byte, 1);
    error = errno;
    atomic_store(&ended, 1);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    MUST(pipe(ends));
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t thread = start(reader, NULL);
    while (!atomic_load(&ended)) {
        settle();
        if (!atomic_load(&ended))
            pthread_kill(thread, SIGUSR1);
    }
    join(thread);
    check("kill_reader_eintr", result == -1 && error == EINTR, "read %d, errno %d", result, error);

    action.sa_flags = SA_RESTART;
    MUST(sigaction(SIGUSR1, &action, NULL));
    atomic_store(&ended, 0);
    thread = start(reader, NULL);
    for (int i = 0; i < 5; i++) {
        int before = atomic_load(&handled);
        settle();
        pthread_kill(thread, SIGUSR1);
        while (atomic_load(&handled) == before)
            sched_yield();
    }
    int early = atomic_load(&ended);
    if (write(ends[1], "y", 1) != 1)
        return 1;
    join(thread);
    check("kill_reader_restart", !early && result == 1 && byte == 'y',
          "ended early %d, read %d, errno %d, byte %d", early, result, error, byte);
    return verdict();
}
