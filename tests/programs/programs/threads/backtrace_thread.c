/* backtrace() in a thread finds its frames and ends, also after switches and in a handler. */
#include "case.h"
#include <execinfo.h>
#include <signal.h>

static int in_handler;

static void handler(int signal)
{
    void *frames[64];
    (void)signal;
    in_handler = backtrace(frames, 64);
}

__attribute__((noinline)) static int count_frames(int depth)
{
    void *frames[64];
    int found = depth > 0 ? count_frames(depth - 1) : backtrace(frames, 64);
    __asm__ volatile("" ::: "memory");
    return found;
}

__attribute__((noinline)) static int names_body(void)
{
    void *frames[64];
    int count = backtrace(frames, 64), found = 0;
    char **names = backtrace_symbols(frames, count);
    for (int i = 0; i < count; i++)
        found += strstr(names[i], "exported_body") != NULL;
    free(names);
    return found;
}

void *exported_body(void *unused)
{
    int shallow = count_frames(0), deep = count_frames(5);
    check("backtrace_depth", deep == shallow + 5 && shallow >= 2 && deep < 40, "%d and %d frames",
          shallow, deep);
    usleep(1000);
    sched_yield();
    check("backtrace_after_switch", count_frames(5) == deep, "%d, before %d", count_frames(5), deep);
    check("backtrace_names", names_body() == 1, "the thread's function is not in its backtrace");
    raise(SIGUSR1);
    check("backtrace_in_handler", in_handler > 2 && in_handler < 40, "%d frames", in_handler);
    return unused;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler};
    void *warm[4];
    backtrace(warm, 4);
    MUST(sigaction(SIGUSR1, &action, NULL));
    join(start(exported_body, NULL));
    return verdict();
}
