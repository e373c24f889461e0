/* Calls that take the id of any thread, and mean its process; and what futex(2) answers about owners by their ids. */
#include "case.h"
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static volatile int handled;

static void handler(int unused)
{
    (void)unused;
    handled = 1;
}

static void answers(const char *who, pid_t id)
{
    char name[64];
#define ASK(call, wanted)                                                                          \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long answer = (call);                                                                      \
        snprintf(name, sizeof name, "%s_%s", who, #call);                                          \
        *strchr(name, '(') = 0;                                                                    \
        check(name, answer == (wanted), "%ld, errno %d", answer, errno);                           \
    } while (0)
    struct rlimit limit;
    struct timespec interval;
    int value = 7, copy = 0;
    struct iovec from = {&value, sizeof value}, to = {&copy, sizeof copy};
    ASK(kill(id, 0), 0);
    ASK(getpgid(id), getpgid(0));
    ASK(getsid(id), getsid(0));
    ASK(prlimit(id, RLIMIT_NOFILE, NULL, &limit), 0);
    ASK(sched_rr_get_interval(id, &interval), 0);
    ASK(process_vm_readv(id, &to, 1, &from, 1, 0), (long)sizeof value);
    ASK(process_vm_writev(id, &to, 1, &from, 1, 0), (long)sizeof value);
    ASK(sched_getscheduler(id), SCHED_OTHER);
    ASK(sigqueue(id, 0, (union sigval){0}), 0);
    handled = 0;
    ASK(kill(id, SIGUSR1), 0);
    while (!handled)
        sched_yield();
    check(name, handled, "no handler");
}

static pid_t last;

static void *asks(void *unused)
{
    last = gettid();
    answers("thread", last);
    errno = 0;
    check("setpgid_of_thread", setpgid(last, 0) == -1 && errno == EINVAL, "errno %d", errno);
    return unused;
}

static uint32_t words[2] __attribute__((aligned(8)));

static long futex(int operation, uint32_t *word, uint32_t value, const void *fourth, uint32_t *second, uint32_t third)
{
    long answer = syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, fourth, second, third);
    return answer < 0 ? -errno : answer;
}

static void *requeued(void *unused)
{
    (void)unused;
    struct timespec until = ahead(CLOCK_MONOTONIC, 20000000000);
    long answer = futex(FUTEX_WAIT_REQUEUE_PI, words, 5, &until, words + 1, 0);
    int owns = (words[1] & FUTEX_TID_MASK) == (uint32_t)gettid();
    futex(FUTEX_UNLOCK_PI, words + 1, 0, NULL, NULL, 0);
    return (void *)(answer != 0 ? answer : owns ? 1 : -1000);
}

static void futexes(void)
{
    uint32_t *odd = (uint32_t *)((char *)words + 6);
    struct timespec none = {0, 0}, *nothing = NULL;
#define ANSWER(name, call, wanted)                                                                 \
    do {                                                                                           \
        words[0] = 5;                                                                              \
        long answer = (call);                                                                      \
        check(name, answer == (wanted), "%ld", answer);                                            \
    } while (0)
    ANSWER("requeue_to_odd_word", futex(FUTEX_REQUEUE, words, 1, (void *)1, odd, 0), -EINVAL);
    ANSWER("wake_op_on_odd_word", futex(FUTEX_WAKE_OP, words, 1, (void *)1, odd, 0), -EINVAL);
    ANSWER("wake_op_unknown", futex(FUTEX_WAKE_OP, words, 1, (void *)1, words + 1, 0x7f000000), -ENOSYS);
    ANSWER("wake_by_clock", futex(FUTEX_WAKE | FUTEX_CLOCK_REALTIME, words, 1, nothing, NULL, 0), -ENOSYS);
    ANSWER("no_such_operation", futex(99, words, 1, nothing, NULL, 0), -ENOSYS);
    words[0] = 0x3ffffff0;
    long answer = futex(FUTEX_LOCK_PI, words, 0, &none, NULL, 0);
    check("owner_is_nobody", answer == -ESRCH, "%ld", answer);

    words[0] = 5;
    words[1] = 0;
    check("requeue_wakes_one", futex(FUTEX_CMP_REQUEUE_PI, words, 2, (void *)1, words + 1, 5) == -EINVAL, "no");
    check("requeue_compares", futex(FUTEX_CMP_REQUEUE_PI, words, 1, (void *)1, words + 1, 6) == -EAGAIN, "no");
    pthread_t waiters[3];
    for (int i = 0; i < 3; i++)
        waiters[i] = start(requeued, NULL);
    int let_go = 0;
    while (let_go < 3) {
        settle();
        long some = futex(FUTEX_CMP_REQUEUE_PI, words, 1, (void *)8, words + 1, 5);
        if (some < 0)
            break;
        let_go += some;
    }
    int own = 0;
    for (int i = 0; i < 3; i++)
        own += (long)join(waiters[i]) == 1;
    check("requeued_threads_own_the_mutex", let_go == 3 && own == 3, "%d let go, %d owned it", let_go, own);
}

int main(void)
{
    signal(SIGUSR1, handler);
    join(start(asks, NULL));
    answers("process", getpid());
    futexes();
    return verdict();
}
