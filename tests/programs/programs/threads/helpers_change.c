/* What one of libc's own threads changes (in a function for a timer) holds for all threads: the action of a signal, the
 * flags of a description, the files that are closed and replaced. */
#include "case.h"
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static sem_t done;
static int own[2], second[2];
static atomic_int handled, stop, late;

static void on_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(&handled, 1);
}

static void sets_action(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    MUST(sigaction(SIGUSR1, &action, NULL));
}

static void sets_flag(void) { MUST(fcntl(own[0], F_SETFL, O_NONBLOCK)); }

static void replaces(void) { MUST(dup2(second[0], own[0]) != own[0]); }

static void closes_and_opens(void)
{
    MUST(close(own[0]));
    MUST(dup2(second[0], own[0]) != own[0]);
}

/* More than the program has: nothing of the program's. */
static void closes_many(void) { MUST((int)syscall(SYS_close_range, 600, ~0U, 0)); }

static void on_timer(union sigval value)
{
    ((void (*)(void))value.sival_ptr)();
    sem_post(&done);
}

static void by_helper(void (*act)(void))
{
    timer_t timer;
    struct sigevent event = {
        .sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer, .sigev_value.sival_ptr = (void *)act};
    struct itimerspec once = {.it_value = {.tv_nsec = 1000000}};
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    MUST(timer_settime(timer, 0, &once, NULL));
    while (sem_wait(&done) != 0) {
    }
    MUST(timer_delete(timer));
}

static void *writes(void *byte)
{
    settle();
    MUST(write(own[1], byte, 1) != 1);
    return NULL;
}

static void *writes_to_second(void *byte)
{
    settle();
    MUST(write(second[1], byte, 1) != 1);
    return NULL;
}

/* Waits until a byte comes. */
static char waits_for(void *(*writer)(void *), const char *sent)
{
    char byte = 0;
    pthread_t thread = start(writer, (void *)sent);
    if (read(own[0], &byte, 1) != 1)
        byte = '!';
    join(thread);
    return byte;
}

/* If a read waits that must not. */
static void *ends_wait(void *unused)
{
    for (int i = 0; i < 1000 && !atomic_load(&stop); i++)
        settle();
    if (!atomic_load(&stop)) {
        atomic_store(&late, 1);
        MUST(write(own[1], "l", 1) != 1);
    }
    return unused;
}

static void *descriptors(void *unused)
{
    MUST(pipe(own));
    MUST(pipe(second));
    char one = waits_for(writes, "a");
    by_helper(sets_flag);
    pthread_t thread = start(ends_wait, NULL);
    char byte;
    errno = 0;
    long answer = read(own[0], &byte, 1);
    int error = errno;
    atomic_store(&stop, 1);
    join(thread);
    check("flag_by_helper", one == 'a' && answer == -1 && error == EAGAIN && !atomic_load(&late), "%ld, errno %d",
          answer, error);
    MUST(fcntl(own[0], F_SETFL, 0));
    one = waits_for(writes, "b");
    by_helper(replaces);
    char two = waits_for(writes_to_second, "c");
    check("replaced_by_helper", one == 'b' && two == 'c', "%c %c", one, two);
    MUST(pipe(second));
    by_helper(closes_and_opens);
    two = waits_for(writes_to_second, "d");
    check("closed_by_helper", two == 'd', "%c", two);
    by_helper(closes_many);
    two = waits_for(writes_to_second, "e");
    check("others_closed_by_helper", two == 'e', "%c", two);
    return unused;
}

int main(void)
{
    sem_init(&done, 0, 0);
    pthread_t thread = start(descriptors, NULL);
    join(thread);
    by_helper(sets_action);
    struct sigaction action;
    MUST(sigaction(SIGUSR1, NULL, &action));
    check("action_by_helper", action.sa_handler == on_signal && raise(SIGUSR1) == 0 && atomic_load(&handled) == 1,
          "%d handled", atomic_load(&handled));
    return verdict();
}
