/* Signals for one thread name its process, too: the child of a fork sends some to ids that are threads in another process,
 * or in none. */
#include "case.h"
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static volatile int handled;
static volatile pid_t other;

static void handler(int unused)
{
    (void)unused;
    handled++;
}

static long queue(pid_t process, pid_t id, int number, int code)
{
    siginfo_t information;
    memset(&information, 0, sizeof information);
    information.si_code = code;
    information.si_pid = getpid();
    long answer = syscall(SYS_rt_tgsigqueueinfo, process, id, number, &information);
    return answer < 0 ? -errno : answer;
}

static long send(pid_t process, pid_t id, int number)
{
    long answer = syscall(SYS_tgkill, process, id, number);
    return answer < 0 ? -errno : answer;
}

static void answers(const char *who)
{
    char name[64];
    pid_t parent = getppid();
#define ANSWER(call, wanted)                                                                       \
    do {                                                                                           \
        long answer = (call);                                                                      \
        int before = handled;                                                                      \
        snprintf(name, sizeof name, "%s %s", who, #call);                                          \
        check(name, answer == (wanted) && before == 0, "%ld, %d signals", answer, before);         \
        handled = 0;                                                                               \
    } while (0)
    ANSWER(queue(parent, other, SIGUSR1, SI_QUEUE), -ESRCH);
    ANSWER(queue(parent, other, 0, SI_QUEUE), -ESRCH);
    ANSWER(queue(0, other, SIGUSR1, SI_QUEUE), -EINVAL);
    ANSWER(queue(-1, other, SIGUSR1, SI_QUEUE), -EINVAL);
    ANSWER(queue(getpid(), 0, SIGUSR1, SI_QUEUE), -EINVAL);
    ANSWER(queue(getpid(), parent, SIGUSR1, SI_QUEUE), -ESRCH);
    ANSWER(queue(getpid(), other, 65, SI_QUEUE), -EINVAL);
    ANSWER(queue(getpid(), other, SIGUSR1, SI_TKILL), -EPERM);
    ANSWER(queue(getpid(), other, 0, SI_QUEUE), 0);
    ANSWER(send(parent, other, SIGUSR1), -ESRCH);
    ANSWER(send(parent, other, 0), -ESRCH);
    ANSWER(send(0, other, SIGUSR1), -EINVAL);
    ANSWER(send(-1, other, SIGUSR1), -EINVAL);
    ANSWER(send(getpid(), 0, SIGUSR1), -EINVAL);
    ANSWER(send(getpid(), parent, SIGUSR1), -ESRCH);
    ANSWER(send(getpid(), other, 65), -EINVAL);
    ANSWER(send(getpid(), other, 0), 0);
    /* Such a signal does arrive. */
    handled = 0;
    long answer = queue(getpid(), other, SIGUSR1, SI_QUEUE);
    while (answer == 0 && handled == 0)
        sched_yield();
    handled = 0;
    snprintf(name, sizeof name, "%s arrives", who);
    check(name, answer == 0, "%ld", answer);
}

static void *lives(void *unused)
{
    other = gettid();
    for (;;)
        pause();
    return unused;
}

static void *asks_bound(void *unused)
{
    MUST(setpriority(PRIO_PROCESS, 0, 3));
    answers("bound");
    return unused;
}

static void *asks(void *unused)
{
    answers("thread");
    return unused;
}

int main(void)
{
    signal(SIGUSR1, handler);
    pid_t child = fork();
    if (child == 0) {
        start(lives, NULL);
        while (other == 0)
            sched_yield();
        answers("first");
        join(start(asks, NULL));
        join(start(asks_bound, NULL));
        exit(verdict());
    }
    int status = -1;
    MUST(waitpid(child, &status, 0) != child);
    return status != 0;
}
