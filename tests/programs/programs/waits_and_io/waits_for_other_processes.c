/* Message queues, System V messages and semaphores, locks of files and leases: threads wait for them, they belong to the
 * process or to its descriptors, and what a thread leaves behind when it ends stays the process's. */
#include "crowd.h"
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>

enum { TIMES = 50, SIDES = 4, LENGTH = 8 };
static mqd_t queue;
static int messages, semaphores, file;
static char path[64];
static atomic_int wrong, notified, signalled;

static void *receives(void *unused)
{
    char text[LENGTH];
    for (int i = 0; i < TIMES; i++)
        atomic_fetch_add(&wrong, UNSTOPPED(mq_receive(queue, text, LENGTH, NULL)) != LENGTH);
    return unused;
}

static void *sends(void *unused)
{
    for (int i = 0; i < TIMES; i++)
        atomic_fetch_add(&wrong, UNSTOPPED(mq_send(queue, "message", LENGTH, (unsigned)i % 3)) != 0);
    return unused;
}

struct message {
    long kind;
    char text[LENGTH];
};

static void *receives_kind(void *kind)
{
    struct message message;
    for (int i = 0; i < TIMES; i++)
        atomic_fetch_add(&wrong, UNSTOPPED(msgrcv(messages, &message, LENGTH, (long)kind, 0)) != LENGTH ||
                                     message.kind != (long)kind);
    return kind;
}

static void *sends_kind(void *kind)
{
    struct message message = {(long)kind, "message"};
    for (int i = 0; i < TIMES; i++)
        atomic_fetch_add(&wrong, UNSTOPPED(msgsnd(messages, &message, LENGTH, 0)) != 0);
    return kind;
}

static void both(const char *name, void *(*one)(void *), void *(*other)(void *))
{
    pthread_t threads[2 * SIDES];
    atomic_store(&wrong, 0);
    for (long i = 0; i < SIDES; i++) {
        threads[2 * i] = start(one, (void *)(i + 1));
        threads[2 * i + 1] = start(other, (void *)(i + 1));
    }
    for (int i = 0; i < 2 * SIDES; i++)
        join(threads[i]);
    check(name, atomic_load(&wrong) == 0, "%d wrong", atomic_load(&wrong));
}

static void comes(int signal, siginfo_t *information, void *context)
{
    (void)signal, (void)context;
    atomic_store(&signalled, information->si_code == SI_MESGQ ? information->si_value.sival_int : -1);
}

static void in_thread(union sigval value) { atomic_store(&notified, value.sival_int); }

static void notify(const char *name, int how, atomic_int *told)
{
    char text[LENGTH];
    struct sigevent event = {.sigev_notify = how, .sigev_value.sival_int = 42};
    if (how == SIGEV_SIGNAL)
        event.sigev_signo = SIGUSR1;
    else
        event.sigev_notify_function = in_thread;
    MUST(mq_notify(queue, &event));
    MUST(mq_send(queue, "message", LENGTH, 0));
    while (atomic_load(told) == 0)
        usleep(300);
    MUST(mq_receive(queue, text, LENGTH, NULL) != LENGTH);
    check(name, atomic_load(told) == 42, "%d", atomic_load(told));
}

static int change(int by, int flags)
{
    struct sembuf operation = {0, (short)by, (short)flags};
    return (int)UNSTOPPED(semop(semaphores, &operation, 1));
}

static void *adds(void *flags)
{
    MUST(change(1, (int)(long)flags));
    return NULL;
}

static void *takes(void *unused)
{
    MUST(change(-1, 0));
    return unused;
}

static void several(void *(*body)(void *), void *argument)
{
    pthread_t threads[SIDES];
    for (int i = 0; i < SIDES; i++)
        threads[i] = start(body, argument);
    for (int i = 0; i < SIDES; i++)
        join(threads[i]);
}

static void sum_up(void)
{
    several(adds, (void *)SEM_UNDO);
    int kept = semctl(semaphores, 0, GETVAL);
    pid_t child = fork();
    if (child == 0) {
        several(adds, (void *)SEM_UNDO);
        _exit(semctl(semaphores, 0, GETVAL));
    }
    int status;
    MUST(waitpid(child, &status, 0) != child);
    int left = semctl(semaphores, 0, GETVAL);
    check("undone_with_the_process", kept == SIDES && WEXITSTATUS(status) == 2 * SIDES && left == SIDES,
          "%d, in the child %d, then %d", kept, WEXITSTATUS(status), left);
    MUST(semctl(semaphores, 0, SETVAL, 0));
    pthread_t waiters[SIDES];
    for (int i = 0; i < SIDES; i++)
        waiters[i] = start(takes, NULL);
    settle();
    several(adds, NULL);
    for (int i = 0; i < SIDES; i++)
        join(waiters[i]);
    check("semaphores", semctl(semaphores, 0, GETVAL) == 0, "%d", semctl(semaphores, 0, GETVAL));
}

static int lock(int command, int kind, long at)
{
    struct flock asked = {.l_type = (short)kind, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    return (int)UNSTOPPED(fcntl(file, command, &asked));
}

static pid_t holder(long at)
{
    struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    MUST(fcntl(file, F_GETLK, &asked));
    return asked.l_type == F_UNLCK ? 0 : asked.l_pid;
}

static void *locks(void *at) { return (void *)(long)(lock(F_SETLKW, F_WRLCK, (long)at) != 0 ? errno : 0); }

/* The process has 0 and waits for 1; its child has 1 and waits for 0, which would never end. */
static void process_locks(void)
{
    MUST(lock(F_SETLK, F_WRLCK, 0));
    long again = (long)join(start(locks, (void *)0));
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        MUST(lock(F_SETLK, F_WRLCK, 1));
        int is_parents = holder(0) == parent;
        long answer = (long)join(start(locks, (void *)0));
        _exit(is_parents ? (int)answer : 100);
    }
    while (holder(1) != child)
        usleep(300);
    long first = (long)join(start(locks, (void *)1));
    /* Of the two the later one is refused. */
    MUST(lock(F_SETLK, F_UNLCK, 0));
    int status;
    MUST(waitpid(child, &status, 0) != child);
    int second = WEXITSTATUS(status);
    check("locks_of_processes", again == 0 && ((first == EDEADLK) ^ (second == EDEADLK)) && first + second == EDEADLK,
          "again %ld, %ld and %d", again, first, second);
}

static void *locks_description(void *whole)
{
    int own = open(path, O_RDWR);
    struct flock asked = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    int answer = (int)UNSTOPPED(whole != NULL ? flock(own, LOCK_EX) : fcntl(own, F_OFD_SETLKW, &asked));
    close(own);
    return (void *)(long)answer;
}

static void description_locks(void)
{
    MUST(lock(F_OFD_SETLK, F_WRLCK, 0));
    pthread_t waiter = start(locks_description, NULL);
    settle();
    MUST(lock(F_OFD_SETLK, F_UNLCK, 0));
    check("locks_of_descriptions", join(waiter) == NULL, "refused");
    MUST(flock(file, LOCK_EX));
    waiter = start(locks_description, "whole");
    settle();
    MUST(flock(file, LOCK_UN));
    check("locks_of_files", join(waiter) == NULL, "refused");
}

int main(void)
{
    char name[32];
    struct mq_attr room = {.mq_maxmsg = 4, .mq_msgsize = LENGTH};
    struct sigaction action = {.sa_sigaction = comes, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(sigaction(SIGUSR1, &action, NULL));
    begin_crowd();
    snprintf(name, sizeof name, "/upcall-%d", getpid());
    queue = mq_open(name, O_CREAT | O_RDWR, 0600, &room);
    if (queue >= 0) {
        MUST(mq_unlink(name));
        both("message_queue", receives, sends);
        notify("message_queue_signal", SIGEV_SIGNAL, &signalled);
        notify("message_queue_thread", SIGEV_THREAD, &notified);
    }
    messages = msgget(IPC_PRIVATE, 0600);
    both("messages", receives_kind, sends_kind);
    MUST(msgctl(messages, IPC_RMID, NULL));
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    sum_up();
    MUST(semctl(semaphores, 0, IPC_RMID));
    snprintf(path, sizeof path, "/tmp/upcall-locks-%d", getpid());
    file = open(path, O_CREAT | O_RDWR, 0600);
    process_locks();
    description_locks();
    MUST(unlink(path));
    end_crowd();
    return verdict();
}
