/* getrandom in the vDSO makes its system call on a stack of 1 KiB, as Go's runtime does. Signals go
 * to the alternate stack. */
#include "case.h"
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>

typedef long getrandom_call(void *, size_t, unsigned, void *, size_t);

enum { ROOM = 1024, PAGE = 4096 };

static long on_stack(void *top, getrandom_call *call)
{
    long answer;
    /* An unknown flag: the vDSO leaves the answer to the kernel. */
    __asm__ volatile("mov %%rsp, %%rbx\n"
                     "mov %[top], %%rsp\n"
                     "xor %%edi, %%edi\n"
                     "xor %%esi, %%esi\n"
                     "mov $0x4000, %%edx\n"
                     "xor %%ecx, %%ecx\n"
                     "xor %%r8d, %%r8d\n"
                     "call *%[call]\n"
                     "mov %%rbx, %%rsp\n"
                     : "=a"(answer)
                     : [top] "r"(top), [call] "r"(call)
                     : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc",
                       "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                       "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    return answer;
}

static void handler(int signal) { (void)signal; }

static void *all(void *when)
{
    char name[40];
    stack_t stack = {.ss_size = 65536, .ss_sp = malloc(65536)};
    MUST(sigaltstack(&stack, NULL));
    void *vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
    getrandom_call *call = vdso == NULL ? NULL : (getrandom_call *)dlsym(vdso, "__vdso_getrandom");
    char *memory = mmap(NULL, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(mprotect(memory + PAGE, PAGE, PROT_READ | PROT_WRITE));
    /* Linux before 6.11 has none, and nothing can go wrong there. */
    long answer = call == NULL ? -EINVAL : on_stack(memory + PAGE + ROOM, call);
    snprintf(name, sizeof name, "getrandom_%s", (const char *)when);
    check(name, answer == -EINVAL, "%ld", answer);
    stack.ss_flags = SS_DISABLE;
    MUST(sigaltstack(&stack, NULL));
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &action, NULL));
    all("alone");
    join(start(all, "in_a_thread"));
    return verdict();
}
