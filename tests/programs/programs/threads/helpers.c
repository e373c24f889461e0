/* What libc's own helper threads start: other helpers (asynchronous I/O on several files), and what a
 * program's own function does on one (SIGEV_THREAD): threads, fork, posix_spawn, vfork. Meanwhile other
 * threads go on. */
#include "case.h"
#include <aio.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

#define FILES 6
#define ROUNDS 200
extern char **environ;
static atomic_int stop, turns, expired, bad;
static sem_t served;

static void *busy(void *unused)
{
    while (!atomic_load(&stop)) {
        atomic_fetch_add(&turns, 1);
        sched_yield();
    }
    return unused;
}

static void *transfers(void *arg)
{
    char names[FILES][32], bytes[FILES][64];
    struct aiocb blocks[FILES], *list[FILES];
    int files[FILES];
    for (int i = 0; i < FILES; i++) {
        snprintf(names[i], sizeof names[i], "helpers-%ld-%d", (long)arg, i);
        files[i] = open(names[i], O_RDWR | O_CREAT | O_TRUNC, 0600);
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int reads = 0; reads < 2; reads++) {
            for (int i = 0; i < FILES; i++) {
                memset(bytes[i], reads ? 0 : round + i, sizeof bytes[i]);
                memset(&blocks[i], 0, sizeof blocks[i]);
                blocks[i].aio_fildes = files[i];
                blocks[i].aio_buf = bytes[i];
                blocks[i].aio_nbytes = sizeof bytes[i];
                blocks[i].aio_lio_opcode = reads ? LIO_READ : LIO_WRITE;
                list[i] = &blocks[i];
            }
            if (lio_listio(LIO_WAIT, list, FILES, NULL) != 0)
                atomic_fetch_add(&bad, 1);
            for (int i = 0; i < FILES; i++)
                if (aio_error(&blocks[i]) != 0 || aio_return(&blocks[i]) != sizeof bytes[i] ||
                    bytes[i][63] != (char)(round + i))
                    atomic_fetch_add(&bad, 1);
        }
    for (int i = 0; i < FILES; i++) {
        close(files[i]);
        unlink(names[i]);
    }
    return NULL;
}

static void *answer(void *arg) { return arg; }

static int status_of(pid_t child)
{
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* On a helper of libc's. */
static void on_timer(union sigval value)
{
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, answer, value.sival_ptr) != 0 || pthread_join(thread, &result) != 0 ||
        result != value.sival_ptr)
        atomic_fetch_add(&bad, 1);
    pid_t forked = fork();
    if (forked == 0) {
        /* A process of its own, with threads of its own. */
        if (pthread_create(&thread, NULL, answer, &turns) != 0 || pthread_join(thread, &result) != 0)
            _exit(1);
        _exit(result == &turns ? 5 : 2);
    }
    if (status_of(forked) != 5)
        atomic_fetch_add(&bad, 1);
    pid_t spawned;
    char *arguments[] = {"sh", "-c", "exit 6", NULL};
    if (posix_spawn(&spawned, "/bin/sh", NULL, NULL, arguments, environ) != 0 || status_of(spawned) != 6)
        atomic_fetch_add(&bad, 1);
    pid_t lent = vfork();
    if (lent == 0) {
        execv("/bin/sh", arguments);
        _exit(9);
    }
    if (status_of(lent) != 6)
        atomic_fetch_add(&bad, 1);
    atomic_fetch_add(&expired, 1);
    sem_post(&served);
}

int main(void)
{
    sem_init(&served, 0, 0);
    pthread_t spinner = start(busy, NULL), movers[3];
    for (long i = 0; i < 3; i++)
        movers[i] = start(transfers, (void *)i);
    timer_t timers[3];
    for (int i = 0; i < 3; i++) {
        struct sigevent event = {
            .sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer, .sigev_value.sival_ptr = &timers[i]};
        struct itimerspec once = {.it_value = {.tv_nsec = 1000000 * (i + 1)}};
        MUST(timer_create(CLOCK_MONOTONIC, &event, &timers[i]));
        MUST(timer_settime(timers[i], 0, &once, NULL));
    }
    for (int i = 0; i < 3; i++)
        sem_wait(&served);
    for (int i = 0; i < 3; i++)
        pthread_join(movers[i], NULL);
    check("transfers", atomic_load(&bad) == 0, "%d wrong", atomic_load(&bad));
    check("timers", atomic_load(&expired) == 3, "%d expired", atomic_load(&expired));
    int before = atomic_load(&turns);
    while (atomic_load(&turns) == before)
        usleep(1000);
    atomic_store(&stop, 1);
    pthread_join(spinner, NULL);
    return verdict();
}
