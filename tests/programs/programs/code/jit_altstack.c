/* Code made at run time sets, asks for and takes away its thread's alternate signal stack, in a
 * program that handles every signal on that stack, SIGSYS included. */
#include "case.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

typedef long call(long number, long a, long b);

/* mov %rdi,%rax; mov %rsi,%rdi; mov %rdx,%rsi; syscall; ret */
static const unsigned char code[] = {0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7,
                                     0x48, 0x89, 0xd6, 0x0f, 0x05, 0xc3};
enum { SIZE = 65536 };

static call *enter;
static char memory[2][SIZE];
static volatile long flags_there, answer_there;

static long altstack(const stack_t *wanted, stack_t *found)
{
    return enter(SYS_sigaltstack, (long)wanted, (long)found);
}

static void handler(int signal)
{
    stack_t found = {0}, none = {.ss_flags = SS_DISABLE};
    (void)signal;
    altstack(NULL, &found);
    flags_there = found.ss_flags;
    answer_there = altstack(&none, NULL);
}

static void *all(void *when)
{
    char name[64];
    stack_t one = {.ss_sp = memory[0], .ss_size = SIZE}, found = {0};
    stack_t other = {.ss_sp = memory[1], .ss_size = SIZE}, none = {.ss_flags = SS_DISABLE};
#define CHECK(what, holds, ...)                                                                    \
    (snprintf(name, sizeof name, "%s_%s", what, (const char *)when), check(name, holds, __VA_ARGS__))

    long answer = altstack(&one, NULL);
    CHECK("set", answer == 0, "%ld", answer);
    answer = altstack(NULL, &found);
    CHECK("asked", answer == 0 && found.ss_sp == memory[0] && found.ss_flags == 0, "%ld, %p, %x",
          answer, found.ss_sp, found.ss_flags);
    raise(SIGUSR1);
    CHECK("in_a_handler", flags_there == SS_ONSTACK && answer_there == -EPERM, "%lx, %ld",
          flags_there, answer_there);
    answer = altstack(&other, &found);
    CHECK("changed", answer == 0 && found.ss_sp == memory[0] && found.ss_flags == 0, "%ld, %p, %x",
          answer, found.ss_sp, found.ss_flags);
    raise(SIGUSR1);
    answer = altstack(&none, &found);
    CHECK("taken_away", answer == 0 && found.ss_sp == memory[1] && found.ss_flags == 0,
          "%ld, %p, %x", answer, found.ss_sp, found.ss_flags);
    answer = altstack(NULL, &found);
    CHECK("is_away", answer == 0 && found.ss_flags == SS_DISABLE, "%ld, %x", answer,
          found.ss_flags);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    MUST(page == MAP_FAILED);
    memcpy(page, code, sizeof code);
    enter = (call *)page;
    MUST(sigaction(SIGSYS, &action, NULL));
    MUST(sigaction(SIGUSR1, &action, NULL));
    all("alone");
    join(start(all, "in_a_thread"));
    all("after_threads");
    return verdict();
}
