/* sigaltstack(2) as the kernel answers it: errors, what is told where, SS_AUTODISARM, and what a handler
 * sees and leaves in its context. Alone, in a thread, and alone after threads. */
#include "case.h"
#include <signal.h>
#include <stdint.h>
#include <ucontext.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1U << 31)
#endif
enum { SIZE = 65536 };

static char memory[2][SIZE] __attribute__((aligned(16)));
/* The compiler believes that raise(3) calls nothing here. */
static volatile stack_t told, shown, leaves;
static volatile int answer_there, error_there, on_first, on_second, wants_to_leave, sets_there;
static volatile stack_t nested_told;
static volatile int nested_on_first, nested_on_second;

static int is_on(char *stack)
{
    char *here = __builtin_frame_address(0);
    return here > stack && here <= stack + SIZE;
}

static void handler(int signal, siginfo_t *info, void *context)
{
    ucontext_t *interrupted = context;
    stack_t none = {.ss_flags = SS_DISABLE};
    (void)signal, (void)info;
    on_first = is_on(memory[0]);
    on_second = is_on(memory[1]);
    shown = interrupted->uc_stack;
    MUST(sigaltstack(NULL, (stack_t *)&told));
    if (sets_there) {
        stack_t other = {.ss_sp = memory[1], .ss_size = SIZE};
        answer_there = sigaltstack(&other, NULL);
    } else if (!wants_to_leave) {
        answer_there = sigaltstack(&none, NULL);
    }
    error_there = errno;
    if (wants_to_leave)
        interrupted->uc_stack = leaves;
    raise(SIGUSR2);
}

static void nested(int signal)
{
    (void)signal;
    nested_on_first = is_on(memory[0]);
    nested_on_second = is_on(memory[1]);
    MUST(sigaltstack(NULL, (stack_t *)&nested_told));
}

static int fails(const stack_t *stack)
{
    errno = 0;
    return sigaltstack(stack, NULL) == -1 ? errno : 0;
}

static void *all(void *when)
{
    char name[64];
    stack_t one = {.ss_sp = memory[0], .ss_size = SIZE}, found, none = {.ss_flags = SS_DISABLE};
    stack_t small = {.ss_sp = memory[0], .ss_size = 2047}, odd = one, on = one;
#define CHECK(what, holds, ...)                                                                    \
    (snprintf(name, sizeof name, "%s_%s", what, (const char *)when), check(name, holds, __VA_ARGS__))

    odd.ss_flags = 4;
    on.ss_flags = SS_ONSTACK;
    MUST(sigaltstack(NULL, &found));
    CHECK("none_at_first", found.ss_flags == SS_DISABLE && found.ss_size == 0, "%x, %zu",
          found.ss_flags, found.ss_size);
    CHECK("too_small", fails(&small) == ENOMEM, "%d", errno);
    CHECK("odd_flags", fails(&odd) == EINVAL, "%d", errno);
    CHECK("bad_address", fails((void *)16) == EFAULT, "%d", errno);
    CHECK("bad_answer", sigaltstack(NULL, (void *)16) == -1 && errno == EFAULT, "%d", errno);
    CHECK("set_as_if_in_use", fails(&on) == 0, "%d", errno);
    MUST(sigaltstack(&one, &found));
    CHECK("told_before", found.ss_sp == memory[0] && found.ss_flags == 0 && found.ss_size == SIZE,
          "%p, %x", found.ss_sp, found.ss_flags);

    sets_there = wants_to_leave = 0;
    raise(SIGUSR1);
    CHECK("runs_there", on_first, "elsewhere");
    CHECK("in_use", told.ss_sp == memory[0] && told.ss_flags == SS_ONSTACK && told.ss_size == SIZE,
          "%p, %x", told.ss_sp, told.ss_flags);
    CHECK("not_changed_in_use", answer_there == -1 && error_there == EPERM, "%d, %d", answer_there,
          error_there);
    CHECK("shown", shown.ss_sp == memory[0] && shown.ss_flags == 0 && shown.ss_size == SIZE,
          "%p, %x, %zu", shown.ss_sp, shown.ss_flags, shown.ss_size);
    CHECK("nested_there", nested_on_first && nested_told.ss_flags == SS_ONSTACK, "%d, %x",
          nested_on_first, nested_told.ss_flags);

    /* In a handler that is not there: before Linux 6.12 it would be heeded on the stack as well. */
    wants_to_leave = 1;
    leaves = (stack_t){.ss_sp = memory[1], .ss_size = SIZE};
    raise(SIGTERM);
    MUST(sigaltstack(NULL, &found));
    CHECK("left", found.ss_sp == memory[1] && found.ss_flags == 0, "%p, %x", found.ss_sp,
          found.ss_flags);
    leaves.ss_flags = 4;
    leaves.ss_sp = memory[0];
    raise(SIGTERM);
    MUST(sigaltstack(NULL, &found));
    CHECK("shown_elsewhere", !on_first && !on_second && shown.ss_sp == memory[1], "%d, %d, %p",
          on_first, on_second, shown.ss_sp);
    raise(SIGUSR2);
    CHECK("left_in_vain", nested_on_second && found.ss_sp == memory[1] && found.ss_flags == 0, "%d, %p",
          nested_on_second, found.ss_sp);

    wants_to_leave = 0;
    sets_there = 1;
    one.ss_flags = (int)SS_AUTODISARM;
    MUST(sigaltstack(&one, NULL));
    MUST(sigaltstack(NULL, &found));
    CHECK("disarming", found.ss_flags == (int)SS_AUTODISARM, "%x", found.ss_flags);
    raise(SIGUSR1);
    CHECK("disarmed", on_first && told.ss_flags == SS_DISABLE && told.ss_size == 0, "%d, %x, %zu",
          on_first, told.ss_flags, told.ss_size);
    CHECK("changed_while_disarmed", answer_there == 0, "%d", error_there);
    CHECK("nested_elsewhere", !nested_on_first, "on the one in use");
    CHECK("shown_disarmed", shown.ss_sp == memory[0] && shown.ss_flags == (int)SS_AUTODISARM,
          "%p, %x", shown.ss_sp, shown.ss_flags);
    MUST(sigaltstack(NULL, &found));
    CHECK("armed_again", found.ss_sp == memory[0] && found.ss_flags == (int)SS_AUTODISARM, "%p, %x",
          found.ss_sp, found.ss_flags);
    sets_there = 0;
    raise(SIGUSR1);
    CHECK("disarmed_again", on_first && answer_there == 0, "%d, %d", on_first, answer_there);
    MUST(sigaltstack(&none, &found));
    MUST(sigaltstack(NULL, &found));
    CHECK("away", found.ss_flags == SS_DISABLE && found.ss_size == 0, "%x", found.ss_flags);
    raise(SIGUSR1);
    CHECK("without", !on_first && !on_second && told.ss_flags == SS_DISABLE && shown.ss_size == 0,
          "%d, %x, %zu", on_first, told.ss_flags, shown.ss_size);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_ONSTACK | SA_SIGINFO};
    struct sigaction second = {.sa_handler = nested, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &action, NULL));
    action.sa_flags = SA_SIGINFO;
    MUST(sigaction(SIGTERM, &action, NULL));
    MUST(sigaction(SIGUSR2, &second, NULL));
    all("alone");
    join(start(all, "in_a_thread"));
    all("after_threads");
    return verdict();
}
