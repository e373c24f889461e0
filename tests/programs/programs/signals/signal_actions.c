/* What sigaction(2) answers: unknown flags are taken out, which is how a program learns which there are; a handler that
 * is reset keeps its flags and mask; errors. And the order in which signals come that were blocked together. */
#include "case.h"
#include <signal.h>
#include <sys/syscall.h>

enum { UNKNOWN = 0x10000, UNSUPPORTED = 0x400, EXPOSE_TAGBITS = 0x800, RESTORER = 0x04000000 };

/* The kernel's. */
struct action {
    void (*handler)(int);
    unsigned long flags;
    void *restorer;
    unsigned long mask;
};

static long set(int signal, const struct action *new, struct action *old)
{
    return syscall(SYS_rt_sigaction, signal, new, old, 8);
}

static volatile int order[8], came;

static void note(int signal)
{
    if (came < 8)
        order[came] = signal, came = came + 1;
}

static void *body(void *where)
{
    struct sigaction plain = {.sa_handler = note};
    struct action one, other;
    char name[64];
#define CHECK(what, holds, ...) \
    (snprintf(name, sizeof name, "%s_%s", what, (char *)where), check(name, holds, __VA_ARGS__))

    MUST(sigaction(SIGUSR2, &plain, NULL));
    MUST(set(SIGUSR2, NULL, &one));
    one.flags |= UNKNOWN | UNSUPPORTED | EXPOSE_TAGBITS;
    one.mask = ~0ul;
    MUST(set(SIGUSR2, &one, NULL));
    MUST(set(SIGUSR2, NULL, &other));
    CHECK("unknown_flags", other.flags == (RESTORER | EXPOSE_TAGBITS), "flags %#lx", other.flags);
    CHECK("full_mask", other.mask == ~(1ul << (SIGKILL - 1) | 1ul << (SIGSTOP - 1)), "%#lx", other.mask);

    one.flags = RESTORER | SA_RESETHAND | SA_NODEFER;
    one.mask = 1ul << (SIGHUP - 1);
    MUST(set(SIGUSR2, &one, NULL));
    raise(SIGUSR2);
    MUST(set(SIGUSR2, NULL, &other));
    CHECK("reset_handler", came == 1 && other.handler == SIG_DFL, "%d came, then %p", came, (void *)other.handler);
    CHECK("reset_keeps_the_rest", other.flags == one.flags && other.mask == one.mask, "flags %#lx, mask %#lx",
          other.flags, other.mask);

    int errors[4] = {0};
    errors[0] = syscall(SYS_rt_sigaction, SIGUSR2, &one, NULL, 4) ? errno : 0;
    errors[1] = set(65, &one, NULL) ? errno : 0;
    errors[2] = set(SIGKILL, &one, NULL) ? errno : 0;
    errors[3] = set(SIGUSR2, (struct action *)8, NULL) ? errno : 0;
    CHECK("errors", errors[0] == EINVAL && errors[1] == EINVAL && errors[2] == EINVAL && errors[3] == EFAULT,
          "%d %d %d %d", errors[0], errors[1], errors[2], errors[3]);
    CHECK("kill_can_be_read", set(SIGKILL, NULL, &other) == 0, "errno %d", errno);

    const int list[] = {SIGRTMIN + 3, SIGUSR2, SIGTERM, SIGHUP, SIGRTMIN + 1, SIGURG};
    const int sorted[] = {SIGHUP, SIGUSR2, SIGTERM, SIGURG, SIGRTMIN + 1, SIGRTMIN + 3};
    enum { COUNT = sizeof list / sizeof *list };
    sigset_t set, before;
    sigemptyset(&set);
    for (int i = 0; i < COUNT; i++)
        sigaddset(&set, list[i]);
    plain.sa_mask = set;
    for (int i = 0; i < COUNT; i++)
        MUST(sigaction(list[i], &plain, NULL));
    pthread_sigmask(SIG_BLOCK, &set, &before);
    for (int i = 0; i < COUNT; i++)
        raise(list[i]);
    came = 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    int right = came == COUNT;
    for (int i = 0; i < COUNT; i++)
        right &= order[i] == sorted[i];
    CHECK("order", right, "%d: %d %d %d %d %d %d", came, order[0], order[1], order[2], order[3], order[4], order[5]);
    came = 0;
    return NULL;
}

int main(void)
{
    body("before_threads");
    join(start(body, "in_a_thread"));
    return verdict();
}
