/* What a thread with a nice value of its own, and then a function that libc calls on a thread of its own for a timer, do
 * to others: signals, names, ids; and what is that first thread's alone: its alternate stack, its processor time. */
#include "case.h"
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif

static sem_t done, release;
static atomic_int handled;
static _Atomic(void *) handled_at;
static pthread_t other;
static _Atomic pid_t other_id;
static char first_stack[1 << 16], second_stack[1 << 16];

static void on_signal(int signal)
{
    int here;
    (void)signal;
    atomic_store(&handled_at, (void *)&here);
    atomic_fetch_add(&handled, 1);
}

static void *waits(void *unused)
{
    atomic_store(&other_id, (pid_t)syscall(SYS_gettid));
    while (sem_wait(&release) != 0) {
    }
    return unused;
}

static const char *wrong;
static int error;
#define HOLDS(condition) do { if (!(condition) && wrong == NULL) { error = errno; wrong = #condition; } } while (0)

static int is_named(const char *name)
{
    char has[16] = "";
    return pthread_getname_np(other, has, sizeof has) == 0 && strcmp(has, name) == 0;
}

/* The name is the thread's when the file is gone, however that goes. */
static void names(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", (int)other_id);
    int nothing = open("/dev/null", O_RDONLY), file = open(path, O_RDWR);
    HOLDS(write(file, "replaced", 8) == 8 && dup2(nothing, file) == file && is_named("replaced"));
    close(file);
    file = open(path, O_RDWR);
    HOLDS(write(file, "in range", 8) == 8 && syscall(SYS_close_range, file, file, 0) == 0 && is_named("in range"));
    HOLDS(pthread_setname_np(other, "by libc") == 0 && is_named("by libc"));
    close(nothing);
}

static void others(void)
{
    atomic_store(&handled, 0);
    HOLDS(pthread_kill(other, 0) == 0 && pthread_kill(other, SIGUSR1) == 0);
    while (atomic_load(&handled) == 0 && wrong == NULL)
        sched_yield();
    union sigval value = {.sival_int = 1};
    HOLDS(pthread_sigqueue(other, SIGUSR1, value) == 0);
    while (atomic_load(&handled) == 1 && wrong == NULL)
        sched_yield();
    HOLDS(getpgid(other_id) == getpgid(0) && getsid(other_id) == getsid(0));
    HOLDS(kill(other_id, 0) == 0);
    names();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    int file = signalfd(-1, &set, 0);
    HOLDS(file >= 0);
    close(file);
}

static void report(const char *name)
{
    check(name, wrong == NULL, "%s, errno %d", wrong == NULL ? "" : wrong, error);
    wrong = NULL;
}

static void set_stack(char *memory)
{
    stack_t stack = {.ss_sp = memory, .ss_size = sizeof first_stack};
    MUST(sigaltstack(&stack, NULL));
}

static void *bound(void *unused)
{
    set_stack(first_stack);
    long long before;
    while ((before = now(CLOCK_THREAD_CPUTIME_ID)) < 30 * 1000 * 1000) {
    }
    MUST(setpriority(PRIO_PROCESS, 0, 3));
    struct rusage usage;
    HOLDS(getrusage(RUSAGE_THREAD, &usage) == 0);
    long long used = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL + usage.ru_utime.tv_usec +
                     usage.ru_stime.tv_usec;
    HOLDS(used >= before / 1000 - 1000 && used < before / 1000 + 10000000);
    HOLDS(now(CLOCK_THREAD_CPUTIME_ID) >= before);
    struct timespec time;
    clockid_t clock;
    HOLDS(pthread_getcpuclockid(other, &clock) == 0 && clock_gettime(clock, &time) == 0 &&
          clock_getres(clock, &time) == 0);
    report("processor_time");
    others();
    report("others_by_bound");
    set_stack(second_stack);
    int file = dup(1);
    MUST(close(file));
    stack_t stack;
    HOLDS(sigaltstack(NULL, &stack) == 0 && stack.ss_sp == second_stack);
    HOLDS(raise(SIGUSR2) == 0);
    char *at = atomic_load(&handled_at);
    HOLDS(at >= second_stack && at < second_stack + sizeof second_stack);
    HOLDS(raise(SIGUSR1) == 0);
    at = atomic_load(&handled_at);
    HOLDS(at < second_stack || at >= second_stack + sizeof second_stack);
    /* It is disabled while any handler runs. */
    stack_t disarms = {.ss_sp = first_stack, .ss_size = sizeof first_stack, .ss_flags = (int)SS_AUTODISARM};
    HOLDS(sigaltstack(&disarms, NULL) == 0 && raise(SIGUSR1) == 0);
    at = atomic_load(&handled_at);
    HOLDS(at < first_stack || at >= first_stack + sizeof first_stack);
    HOLDS(sigaltstack(NULL, &stack) == 0 && stack.ss_sp == first_stack && stack.ss_flags == disarms.ss_flags);
    report("stack_of_bound");
    return unused;
}

static void on_timer(union sigval unused)
{
    (void)unused;
    others();
    sem_post(&done);
}

int main(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    MUST(sigaction(SIGUSR1, &action, NULL));
    action.sa_flags = SA_ONSTACK;
    MUST(sigaction(SIGUSR2, &action, NULL));
    sem_init(&done, 0, 0);
    sem_init(&release, 0, 0);
    other = start(waits, NULL);
    while (other_id == 0)
        sched_yield();
    others();
    report("others_by_first");
    join(start(bound, NULL));
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_timer};
    struct itimerspec once = {.it_value = {.tv_nsec = 1000000}};
    MUST(timer_create(CLOCK_MONOTONIC, &event, &timer));
    MUST(timer_settime(timer, 0, &once, NULL));
    while (sem_wait(&done) != 0) {
    }
    report("others_by_helper");
    sem_post(&release);
    join(other);
    return verdict();
}
