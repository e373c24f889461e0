/* A thread with a nice value of its own that writes the GS base, by instructions and by arch_prctl(2): its calls go on,
 * and its value is its own, through calls, waits, signals and children. */
#include "case.h"
#include <asm/prctl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

static char rooms[4][64];
static const char *wrong;
#define HOLDS(condition) do { if (!(condition) && wrong == NULL) wrong = #condition; } while (0)

static uintptr_t by_instruction(void)
{
    uintptr_t base;
    __asm__ volatile("rdgsbase %0" : "=r"(base));
    return base;
}

static uintptr_t by_call(void)
{
    uintptr_t base = 1;
    HOLDS(syscall(SYS_arch_prctl, ARCH_GET_GS, &base) == 0);
    return base;
}

static void write_by_instruction(void *base) { __asm__ volatile("wrgsbase %0" : : "r"(base) : "memory"); }

static void write_by_call(void *base) { HOLDS(syscall(SYS_arch_prctl, ARCH_SET_GS, base) == 0); }

static int has(void *base) { return by_instruction() == (uintptr_t)base && by_call() == (uintptr_t)base; }

static void *volatile expected, *volatile left;
static volatile sig_atomic_t handled, handled_right;

static void on_signal(int signal)
{
    (void)signal;
    handled_right += by_instruction() == (uintptr_t)expected;
    getppid();
    handled_right += by_instruction() == (uintptr_t)expected;
    handled++;
    if (left != NULL)
        write_by_instruction(left);
}

/* A handler sees the value, in a wait and between calls, and what it leaves there stays. */
static void signals(void *base)
{
    struct timespec moment = {.tv_nsec = 20000000};
    expected = base;
    left = NULL;
    handled = handled_right = 0;
    HOLDS(raise(SIGUSR1) == 0 && handled == 1 && handled_right == 2 && has(base));
    struct itimerspec once = {.it_value = {.tv_nsec = 1000000}};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_t timer;
    HOLDS(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &once, NULL) == 0);
    while (handled == 1)
        nanosleep(&moment, NULL);
    HOLDS(handled_right == 4 && has(base));
    /* Between calls. */
    HOLDS(timer_settime(timer, 0, &once, NULL) == 0);
    while (handled == 2) {
    }
    HOLDS(handled_right == 6 && has(base));
    left = rooms[3];
    HOLDS(raise(SIGUSR1) == 0 && handled_right == 8 && has(left));
    expected = left;
    HOLDS(timer_settime(timer, 0, &once, NULL) == 0);
    left = base;
    while (handled == 4) {
    }
    HOLDS(handled_right == 10 && has(base));
    HOLDS(timer_delete(timer) == 0);
}

static void children(void *base)
{
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(!has(base));
    HOLDS(waitpid(child, &status, 0) == child && status == 0 && has(base));
}

static void *other(void *base) { return (void *)(uintptr_t)!has(base); }

static void *body(void *unused)
{
    write_by_instruction(rooms[0]);
    HOLDS(setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 5) == 0);
    HOLDS(has(rooms[0]));
    write_by_call(rooms[1]);
    HOLDS(has(rooms[1]));
    write_by_instruction(rooms[2]);
    HOLDS(has(rooms[2]));
    write_by_call(rooms[0]);
    sched_yield();
    usleep(100);
    HOLDS(has(rooms[0]));
    HOLDS(syscall(SYS_arch_prctl, ARCH_SET_GS, -4096L) == -1 && errno == EPERM && has(rooms[0]));
    HOLDS(syscall(SYS_arch_prctl, ARCH_GET_GS, 8L) == -1 && errno == EFAULT && has(rooms[0]));
    signals(rooms[0]);
    write_by_call(rooms[1]);
    signals(rooms[1]);
    children(rooms[1]);
    pthread_t id;
    void *result;
    HOLDS(pthread_create(&id, NULL, other, rooms[1]) == 0 && pthread_join(id, &result) == 0 && result == NULL);
    HOLDS(has(rooms[1]));
    write_by_call(NULL);
    HOLDS(by_call() == 0 && getppid() > 0);
    write_by_call(rooms[2]);
    HOLDS(has(rooms[2]));
    return unused;
}

int main(void)
{
    /* FSGSBASE: programs may write the register. */
    if ((getauxval(AT_HWCAP2) & 2) == 0) {
        fprintf(stderr, "skipped: bound_gs_base: the kernel does not let programs write the GS base\n");
        printf("ok nothing\n");
        return 0;
    }
    struct sigaction action = {.sa_handler = on_signal};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t id;
    MUST(pthread_create(&id, NULL, body, NULL));
    MUST(pthread_join(id, NULL));
    check("bound_gs_base", wrong == NULL, "%s", wrong);
    return verdict();
}
