/* Every way to end, chosen by the argument; the status must be the native one. Output that stdio
 * still holds tells whether it was flushed as natively. */
#include "case.h"
#include <signal.h>
#include <sys/syscall.h>

static void *sleeps(void *unused)
{
    for (;;)
        sleep(1000);
    return unused;
}

static void *exits(void *unused)
{
    settle();
    exit(4);
    return unused;
}

static void *crashes(void *unused)
{
    settle();
    *(volatile int *)8 = 1;
    return unused;
}

static void *aborts(void *unused)
{
    settle();
    abort();
    return unused;
}

static void *exits_group(void *unused)
{
    syscall(SYS_exit_group, 6);
    return unused;
}

static void *kills(void *unused)
{
    pthread_kill(pthread_self(), SIGKILL);
    return unused;
}

__attribute__((noinline)) static int deeper(int depth)
{
    volatile char frame[1000];
    frame[0] = (char)depth;
    return depth < 0 ? 0 : deeper(depth + 1) + frame[0];
}

static void *overflows(void *unused)
{
    settle();
    deeper(1);
    return unused;
}

static void never(int signal) { _exit(signal); }

static void at_exit(void) { printf("atexit ran\n"); }

int main(int count, char **words)
{
    const char *how = count > 1 ? words[1] : "";
    atexit(at_exit);
    printf("%s\n", how);
    for (int i = 0; i < 3; i++)
        pthread_detach(start(sleeps, NULL));
    if (strcmp(how, "return") == 0)
        return 11;
    if (strcmp(how, "exit") == 0)
        exit(12);
    if (strcmp(how, "_exit") == 0)
        _exit(3);
    if (strcmp(how, "abort") == 0)
        abort();
    if (strcmp(how, "sigkill") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how, "sigterm") == 0)
        raise(SIGTERM);
    if (strcmp(how, "segv") == 0)
        *(volatile int *)8 = 1;
    if (strcmp(how, "illegal") == 0)
        __builtin_trap();
    if (strcmp(how, "thread-exit") == 0)
        start(exits, NULL);
    if (strcmp(how, "thread-segv") == 0)
        start(crashes, NULL);
    if (strcmp(how, "thread-abort") == 0)
        start(aborts, NULL);
    if (strcmp(how, "thread-exit-group") == 0)
        start(exits_group, NULL);
    if (strcmp(how, "thread-sigkill") == 0)
        start(kills, NULL);
    if (strcmp(how, "thread-overflow") == 0)
        start(overflows, NULL);
    if (strcmp(how, "thread-overflow-in-vain") == 0) {
        /* It has no stack for that. */
        struct sigaction action = {.sa_handler = never, .sa_flags = SA_ONSTACK};
        MUST(sigaction(SIGSEGV, &action, NULL));
        start(overflows, NULL);
    }
    for (;;)
        pause();
}
