/* What a thread changes for itself in a signal handler (an effective id) is at most its own: no other thread gets it. The
 * call may be refused for a moment; then the thread has not got it either. After siglongjmp(3) out of such a handler the
 * thread is like any other. As root; elsewhere there is nothing to change. */
#include "crowd.h"
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define OWN 2001
static int ends[2];
static atomic_int others_wrong, asks, asked, over;
static volatile int answer, number, has;
static sigjmp_buf left;

static int effective(void) { return (int)syscall(SYS_geteuid); }

/* Not libc's setfsuid, so that the answer is the kernel's. */
static int filesystem(void) { return (int)syscall(SYS_setfsuid, -1); }

static void *other(void *unused)
{
    while (!atomic_load(&over)) {
        if (atomic_exchange(&asks, 0)) {
            atomic_fetch_add(&others_wrong, effective() != 0 || filesystem() != 0);
            atomic_store(&asked, 1);
        }
        usleep(200);
    }
    return unused;
}

static void ask_other(void)
{
    atomic_store(&asked, 0);
    atomic_store(&asks, 1);
    while (!atomic_load(&asked))
        usleep(200);
}

static void changes(int signal)
{
    (void)signal;
    answer = (int)syscall(SYS_setresuid, -1, OWN, -1);
    number = errno;
    has = effective();
}

static void changes_filesystem(int signal)
{
    (void)signal;
    answer = (int)syscall(SYS_setfsuid, OWN);
    has = filesystem();
}

static void leaves(int signal)
{
    (void)signal;
    siglongjmp(left, 1);
}

static pthread_t waiter;
static atomic_int waits;

static void *sends(void *signal)
{
    while (!atomic_load(&waits))
        usleep(1000);
    settle();
    pthread_kill(waiter, (int)(long)signal);
    return NULL;
}

/* One signal for a thread that reads, or none that it has itself raised. */
static void interrupted_by(int signal, int raised)
{
    if (raised) {
        raise(signal);
        return;
    }
    waiter = pthread_self();
    atomic_store(&waits, 0);
    pthread_t sender = start(sends, (void *)(long)signal);
    char byte;
    if (sigsetjmp(left, 1) == 0) {
        atomic_store(&waits, 1);
        if (read(ends[0], &byte, 1) != -1 || errno != EINTR)
            atomic_fetch_add(&others_wrong, 100);
    }
    join(sender);
}

static void *in_handler(void *raised)
{
    interrupted_by(SIGUSR1, raised != NULL);
    ask_other();
    int is_right = (answer == 0 && has == OWN) || (answer == -1 && number == EAGAIN && has == 0);
    return (void *)(long)!is_right;
}

static void *in_handler_of_filesystem(void *raised)
{
    interrupted_by(SIGUSR2, raised != NULL);
    ask_other();
    return (void *)(long)!(answer == 0 && (has == OWN || has == 0));
}

static void *after_leaving(void *unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++)
        interrupted_by(SIGALRM, 0);
    long bad = syscall(SYS_setresuid, -1, OWN, -1) != 0;
    bad += effective() != OWN;
    ask_other();
    pid_t child = fork();
    if (child == 0)
        _exit(effective() == OWN ? 5 : 6);
    int status = 0;
    bad += waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 5;
    return (void *)bad;
}

int main(void)
{
    if (getuid() != 0) {
        check("bound_in_handler", 1, "not root");
        return verdict();
    }
    begin_crowd();
    MUST(pipe(ends));
    void (*const handlers[])(int) = {changes, changes_filesystem, leaves};
    const int signals[] = {SIGUSR1, SIGUSR2, SIGALRM};
    for (int i = 0; i < 3; i++) {
        struct sigaction action = {.sa_handler = handlers[i]};
        MUST(sigaction(signals[i], &action, NULL));
    }
    pthread_t watcher = start(other, NULL);
    long bad = 0;
    for (long raised = 0; raised < 2; raised++) {
        bad += (long)join(start(in_handler, (void *)raised));
        bad += (long)join(start(in_handler_of_filesystem, (void *)raised));
    }
    check("bound_in_handler", bad == 0 && atomic_load(&others_wrong) == 0, "%ld wrong, others %d", bad,
          atomic_load(&others_wrong));
    bad = (long)join(start(after_leaving, NULL));
    check("bound_after_leaving", bad == 0 && atomic_load(&others_wrong) == 0, "%ld wrong, others %d", bad,
          atomic_load(&others_wrong));
    atomic_store(&over, 1);
    join(watcher);
    end_crowd();
    return verdict();
}
