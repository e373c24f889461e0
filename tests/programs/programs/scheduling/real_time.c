/* Real-time policies and nice values: granted to the thread that they are for where the kernel grants them, and to no
 * other; refused as by the kernel. Each case in a child; some as root, where the program is. */
#include "case.h"
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NOBODY 65534
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;
static atomic_int id;
static const char *wrong;
#define HOLDS(condition) do { if (!(condition)) { wrong = #condition; return 1; } } while (0)

static int policy_of(pid_t thread) { return (int)syscall(SYS_sched_getscheduler, thread); }

static int priority_of(pid_t thread)
{
    struct sched_param parameter = {-1};
    return syscall(SYS_sched_getparam, thread, &parameter) == 0 ? parameter.sched_priority : -errno;
}

static int nice_of(pid_t thread)
{
    errno = 0;
    return getpriority(PRIO_PROCESS, thread);
}

static void *says(void *unused)
{
    (void)unused;
    return (void *)(long)(policy_of(0) << 8 | priority_of(0));
}

/* Asks, waits for a lock that the first thread has, and asks again. */
static void *waits(void *unused)
{
    (void)unused;
    long before = policy_of(0) << 8 | priority_of(0);
    atomic_store(&id, (int)syscall(SYS_gettid));
    pthread_barrier_wait(&both);
    pthread_mutex_lock(&lock);
    pthread_mutex_unlock(&lock);
    return (void *)(before << 16 | policy_of(0) << 8 | priority_of(0));
}

static pthread_t start_with(void *(*body)(void *), int policy, int priority)
{
    pthread_attr_t attributes;
    struct sched_param parameter = {priority};
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&attributes, policy);
    pthread_attr_setschedparam(&attributes, &parameter);
    int answer = pthread_create(&thread, &attributes, body, NULL);
    return answer == 0 ? thread : 0;
}

static int begins_with_one(void)
{
    pthread_t thread = start_with(says, SCHED_FIFO, 5);
    HOLDS(thread != 0);
    HOLDS((long)join(thread) == (SCHED_FIFO << 8 | 5));
    HOLDS(policy_of(0) == SCHED_OTHER && priority_of(0) == 0);
    HOLDS((long)join(start(says, NULL)) == SCHED_OTHER << 8);
    return 0;
}

static int another_ones(void)
{
    struct sched_param parameter = {3};
    pthread_mutex_lock(&lock);
    pthread_t thread = start(waits, NULL);
    pthread_barrier_wait(&both);
    usleep(5000);
    HOLDS(pthread_setschedparam(thread, SCHED_RR, &parameter) == 0);
    HOLDS(policy_of(atomic_load(&id)) == SCHED_RR && priority_of(atomic_load(&id)) == 3);
    HOLDS(policy_of(0) == SCHED_OTHER);
    pthread_mutex_unlock(&lock);
    HOLDS((long)join(thread) == (SCHED_RR << 8 | 3));
    return 0;
}

static int own_and_back(void)
{
    join(start(says, NULL));
    struct sched_param parameter = {7}, none = {0}, one = {1};
    HOLDS(sched_setscheduler(0, SCHED_OTHER, &one) == -1 && errno == EINVAL);
    HOLDS(sched_setscheduler(0, SCHED_FIFO, &none) == -1 && errno == EINVAL);
    HOLDS(sched_setscheduler(0, SCHED_FIFO, &parameter) == 0);
    HOLDS(policy_of(0) == SCHED_FIFO && priority_of(0) == 7 && policy_of(getpid()) == SCHED_FIFO);
    struct timespec interval;
    HOLDS(sched_rr_get_interval(0, &interval) == 0 && interval.tv_nsec == 0);
    HOLDS((long)join(start(says, NULL)) == (SCHED_FIFO << 8 | 7));
    HOLDS(sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &parameter) == 0);
    HOLDS(policy_of(0) == (SCHED_RR | SCHED_RESET_ON_FORK));
    HOLDS((long)join(start(says, NULL)) == SCHED_OTHER << 8);
    HOLDS(sched_setscheduler(0, SCHED_OTHER, &none) == 0);
    HOLDS(policy_of(0) == SCHED_OTHER && (long)join(start(says, NULL)) == SCHED_OTHER << 8);
    return 0;
}

static int before_threads(void)
{
    struct sched_param parameter = {2};
    HOLDS(sched_setscheduler(0, SCHED_FIFO, &parameter) == 0);
    for (int i = 0; i < 20; i++)
        HOLDS((long)join(start(says, NULL)) == (SCHED_FIFO << 8 | 2));
    HOLDS(policy_of(0) == SCHED_FIFO);
    return 0;
}

static int is_refused(void)
{
    struct sched_param parameter = {2};
    join(start(says, NULL));
    HOLDS(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    HOLDS(sched_setscheduler(0, SCHED_FIFO, &parameter) == -1 && errno == EPERM);
    HOLDS(pthread_setschedparam(pthread_self(), SCHED_RR, &parameter) == EPERM);
    HOLDS(start_with(says, SCHED_FIFO, 5) == 0);
    HOLDS(policy_of(0) == SCHED_OTHER);
    HOLDS(setpriority(PRIO_PROCESS, 0, -5) == -1 && errno == EACCES && nice_of(0) == 0);
    HOLDS(setpriority(17, 0, 1) == -1 && errno == EINVAL);
    HOLDS((long)join(start(says, NULL)) == SCHED_OTHER << 8);
    return 0;
}

static void *is_nice(void *unused)
{
    (void)unused;
    long good = nice(4) == 4 && nice_of(0) == 4;
    pid_t child = fork();
    if (child == 0)
        _exit(nice_of(0));
    int status = 0;
    good &= waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 4;
    atomic_store(&id, (int)syscall(SYS_gettid));
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    return (void *)(good & (nice_of(0) == 6));
}

static int is_nice_alone(void)
{
    pthread_t thread = start(is_nice, NULL);
    pthread_barrier_wait(&both);
    HOLDS(nice_of(0) == 0 && nice_of(atomic_load(&id)) == 4);
    HOLDS(setpriority(PRIO_PROCESS, atomic_load(&id), 6) == 0 && nice_of(atomic_load(&id)) == 6);
    HOLDS(nice_of(0) == 0);
    pthread_barrier_wait(&both);
    HOLDS(join(thread) != NULL);
    HOLDS(setpriority(PRIO_PROCESS, 0, 8) == 0 && nice_of(0) == 8 && nice_of(getpid()) == 8);
    pid_t child = fork();
    if (child == 0)
        _exit(nice_of(0));
    int status = 0;
    HOLDS(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 8);
    return 0;
}

static void in_child(const char *name, int (*act)(void))
{
    int says_wrong[2];
    char text[200] = "";
    MUST(pipe(says_wrong));
    pid_t child = fork();
    if (child == 0) {
        pthread_barrier_init(&both, NULL, 2);
        int bad = act();
        if (bad)
            bad = (int)write(says_wrong[1], wrong, strlen(wrong) + 1);
        _exit(bad != 0);
    }
    close(says_wrong[1]);
    if (read(says_wrong[0], text, sizeof text) < 0)
        perror("read");
    int status = -1;
    waitpid(child, &status, 0);
    check(name, status == 0, "not %s (status %#x)", text, status);
    close(says_wrong[0]);
}

int main(void)
{
    struct sched_param parameter = {1}, none = {0};
    int granted = sched_setscheduler(0, SCHED_FIFO, &parameter) == 0;
    sched_setscheduler(0, SCHED_OTHER, &none);
    in_child("is_nice_alone", is_nice_alone);
    if (granted) {
        in_child("begins_with_one", begins_with_one);
        in_child("another_ones", another_ones);
        in_child("own_and_back", own_and_back);
        in_child("before_threads", before_threads);
    }
    if (getuid() == 0)
        in_child("is_refused", is_refused);
    return verdict();
}
