/* What a thread changes for itself alone (an effective id, as file servers do for each client) is its own and goes with
 * it, whatever it does then: waits, locks, signals, descriptors, children, its end. As root; elsewhere there is nothing
 * to change. */
#include "crowd.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define OWN 2001
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, priority;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t ready, go, done;
static int whose;
static int pipes[2];
static atomic_int handled, handled_as, ended_as;
static __thread int local = 7;

static int effective(void) { return (int)syscall(SYS_geteuid); }

static void on_signal(int signal)
{
    (void)signal;
    atomic_store(&handled_as, effective());
    atomic_fetch_add(&handled, 1);
}

static void *ends(void *unused)
{
    atomic_store(&ended_as, effective());
    return unused;
}

/* As whom files are made. */
static int owner_of_new(const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/bound_identity.%d.%s", getpid(), name);
    unlink(path);
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    struct stat status = {0};
    if (file >= 0)
        fstat(file, &status);
    close(file);
    unlink(path);
    return file < 0 ? -errno : (int)status.st_uid;
}

static const char *wrong = "nothing";
#define HOLDS(condition) do { if (!(condition)) { wrong = #condition; return (void *)1; } } while (0)

static void *serves(void *unused)
{
    (void)unused;
    pid_t id = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(&priority);
    HOLDS(syscall(SYS_setresuid, -1, OWN, -1) == 0);
    pthread_mutex_unlock(&priority);
    HOLDS((pid_t)syscall(SYS_gettid) == id && local == 7);
    HOLDS(owner_of_new("thread") == OWN);
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&go);
    /* A lock and a condition, to and fro. */
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&lock);
        while (whose != 1)
            pthread_cond_wait(&turn, &lock);
        whose = 0;
        pthread_cond_broadcast(&turn);
        pthread_mutex_unlock(&lock);
        pthread_mutex_lock(&priority);
        pthread_mutex_unlock(&priority);
        sched_yield();
    }
    HOLDS(effective() == OWN);
    char byte = 0;
    HOLDS(read(pipes[0], &byte, 1) == 1 && byte == 'x');
    HOLDS(raise(SIGUSR1) == 0 && atomic_load(&handled) == 1 && atomic_load(&handled_as) == OWN);
    /* A signal that waits while it is blocked. */
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&go);
    HOLDS(atomic_load(&handled) == 1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    HOLDS(atomic_load(&handled) == 2 && atomic_load(&handled_as) == OWN);
    struct timespec used;
    HOLDS(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) == 0 && used.tv_sec < 10);
    pid_t child = fork();
    if (child == 0)
        _exit(effective() == OWN ? 5 : 6);
    int status = 0;
    HOLDS(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 5);
    pthread_t thread = start(ends, NULL);
    join(thread);
    HOLDS(atomic_load(&ended_as) == OWN);
    /* Descriptors that others wait for. */
    int again[2];
    HOLDS(pipe(again) == 0 && close(again[0]) == 0 && close(again[1]) == 0);
    pthread_barrier_wait(&done);
    return NULL;
}

static void *waits(void *unused)
{
    (void)unused;
    syscall(SYS_setresuid, -1, OWN, -1);
    pthread_barrier_wait(&ready);
    for (;;)
        pause();
    return NULL;
}

static void *with_filesystem_id(void *unused)
{
    (void)unused;
    setfsuid(OWN);
    return (void *)(long)(owner_of_new("filesystem") != OWN);
}

int main(void)
{
    if (getuid() != 0) {
        check("bound_identity", 1, "not root");
        return verdict();
    }
    begin_crowd();
    pthread_mutexattr_t inherits;
    pthread_mutexattr_init(&inherits);
    pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT);
    pthread_mutex_init(&priority, &inherits);
    pthread_barrier_init(&ready, NULL, 2);
    pthread_barrier_init(&go, NULL, 2);
    pthread_barrier_init(&done, NULL, 2);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGUSR1, &action, NULL);
    MUST(pipe(pipes));
    long bad = 0;
    pthread_t thread = start(serves, NULL);
    pthread_barrier_wait(&ready);
    int own = effective(), files = owner_of_new("main");
    pthread_barrier_wait(&go);
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&lock);
        while (whose != 0)
            pthread_cond_wait(&turn, &lock);
        whose = 1;
        pthread_cond_broadcast(&turn);
        pthread_mutex_unlock(&lock);
        pthread_mutex_lock(&priority);
        pthread_mutex_unlock(&priority);
    }
    usleep(2000);
    MUST((int)write(pipes[1], "x", 1) - 1);
    pthread_barrier_wait(&ready);
    MUST(pthread_kill(thread, SIGUSR1));
    pthread_barrier_wait(&go);
    pthread_barrier_wait(&done);
    bad += (long)join(thread) != 0;
    check("bound_identity", !bad && own == 0 && files == 0, "wrong: %s; the first thread is %d, its files are %d's", wrong,
          own, files);
    bad = (long)join(start(with_filesystem_id, NULL));
    check("bound_filesystem_id", bad == 0 && owner_of_new("main") == 0, "another's");
    /* One that waits is cancelled. */
    thread = start(waits, NULL);
    pthread_barrier_wait(&ready);
    void *result = NULL;
    MUST(pthread_cancel(thread));
    MUST(pthread_join(thread, &result));
    check("bound_cancelled", result == PTHREAD_CANCELED, "%p", result);
    end_crowd();
    return verdict();
}
