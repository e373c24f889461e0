/* What calls about signals answer to right and wrong requests. */
#include "answers.h"
#include <sys/signalfd.h>

static void nothing(int signal) { (void)signal; }

static void ask(void)
{
    uint64_t set = 1 << (SIGUSR1 - 1), old;
    siginfo_t information = {0};
    struct { void *handler; uint64_t flags; void *restorer; uint64_t mask; } action = {0};
    stack_t stack = {0}, small = {.ss_sp = &stack, .ss_size = 100}, odd = {.ss_flags = 77};
    pid_t own = getpid(), tid = syscall(SYS_gettid);
    /* What has come to the process may still be there in the end. */
    signal(SIGUSR1, nothing);
    ASK(syscall(SYS_rt_sigprocmask, 77, &no_signals, NULL, 8));
    ASK(syscall(SYS_rt_sigprocmask, 77, NULL, &old, 8));
    ASK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &no_signals, NULL, 4));
    ASK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NOWHERE, NULL, 8));
    ASK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &set, NOWHERE, 8));
    ASK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &old, 8));
    ASK((long)(old & set));
    ASK(syscall(SYS_tgkill, own, tid, SIGUSR1));
    ASK(syscall(SYS_tgkill, own, tid, SIGUSR1));
    ASK(syscall(SYS_rt_sigpending, &old, 8));
    ASK((long)(old & set));
    ASK(syscall(SYS_rt_sigpending, NOWHERE, 8));
    ASK(syscall(SYS_rt_sigpending, &old, 16));
    ASK(syscall(SYS_rt_sigpending, &old, 4));
    ASK(syscall(SYS_rt_sigtimedwait, &set, &information, &none, 4));
    ASK(syscall(SYS_rt_sigtimedwait, NOWHERE, &information, &none, 8));
    ASK(syscall(SYS_rt_sigtimedwait, &set, &information, &negative, 8));
    ASK(syscall(SYS_rt_sigtimedwait, &set, &information, NOWHERE, 8));
    ASK(syscall(SYS_rt_sigtimedwait, &set, &information, &none, 8));
    ASK((long)information.si_code);
    ASK((long)(information.si_pid == own));
    ASK(syscall(SYS_rt_sigtimedwait, &set, &information, &none, 8));
    ASK(syscall(SYS_rt_sigtimedwait, &set, &information, &soon, 8));
    ASK(syscall(SYS_tgkill, own, tid, SIGUSR1));
    ASK(syscall(SYS_rt_sigtimedwait, &set, NOWHERE, &none, 8));
    ASK(syscall(SYS_rt_sigtimedwait, &set, NULL, &none, 8));
    ASK(syscall(SYS_kill, own, 0));
    ASK(syscall(SYS_kill, own, 65));
    ASK(syscall(SYS_kill, own, -1));
    ASK(syscall(SYS_kill, NO_ID, 0));
    ASK(syscall(SYS_kill, INT_MIN, 0));
    ASK(syscall(SYS_kill, tid, 0));
    ASK(syscall(SYS_tgkill, own, tid, 0));
    ASK(syscall(SYS_tgkill, own, tid, 65));
    ASK(syscall(SYS_tgkill, own, 0, 0));
    ASK(syscall(SYS_tgkill, own, -1, 0));
    ASK(syscall(SYS_tgkill, 0, tid, 0));
    ASK(syscall(SYS_tgkill, -1, tid, 0));
    ASK(syscall(SYS_tgkill, 1, tid, 0));
    ASK(syscall(SYS_tgkill, own, NO_ID, 0));
    ASK(syscall(SYS_tkill, tid, 0));
    ASK(syscall(SYS_tkill, 0, 0));
    ASK(syscall(SYS_tkill, -1, 0));
    ASK(syscall(SYS_tkill, tid, 65));
    information = (siginfo_t){.si_code = SI_QUEUE};
    ASK(syscall(SYS_rt_tgsigqueueinfo, own, tid, SIGUSR1, &information));
    ASK(syscall(SYS_rt_tgsigqueueinfo, own, tid, SIGUSR1, NOWHERE));
    ASK(syscall(SYS_rt_tgsigqueueinfo, own, tid, 65, &information));
    ASK(syscall(SYS_rt_tgsigqueueinfo, own, tid, 0, &information));
    ASK(syscall(SYS_rt_tgsigqueueinfo, 1, tid, 0, &information));
    ASK(syscall(SYS_rt_tgsigqueueinfo, own, -1, 0, &information));
    ASK(syscall(SYS_rt_tgsigqueueinfo, -1, tid, 0, &information));
    information.si_code = SI_TKILL;
    ASK(syscall(SYS_rt_tgsigqueueinfo, own, tid, 0, &information));
    ASK(syscall(SYS_rt_sigqueueinfo, own, SIGUSR1, &information));
    information.si_code = SI_QUEUE;
    ASK(syscall(SYS_rt_sigqueueinfo, own, SIGUSR1, &information));
    ASK(syscall(SYS_rt_sigqueueinfo, own, 65, &information));
    ASK(syscall(SYS_rt_sigqueueinfo, own, SIGUSR1, NOWHERE));
    while (syscall(SYS_rt_sigtimedwait, &set, NULL, &none, 8) > 0) {
    }
    ASK(syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &set, NULL, 8));
    ASK(syscall(SYS_rt_sigaction, 0, &action, NULL, 8));
    ASK(syscall(SYS_rt_sigaction, 65, &action, NULL, 8));
    ASK(syscall(SYS_rt_sigaction, SIGKILL, &action, NULL, 8));
    ASK(syscall(SYS_rt_sigaction, SIGKILL, NULL, &action, 8));
    ASK(syscall(SYS_rt_sigaction, SIGUSR1, NOWHERE, NULL, 8));
    ASK(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NOWHERE, 8));
    ASK(syscall(SYS_rt_sigaction, SIGUSR1, NULL, &action, 4));
    ASK(syscall(SYS_rt_sigaction, SIGURG, NULL, &action, 8));
    ASK((long)action.handler);
    ASK((long)action.flags);
    ASK(syscall(SYS_rt_sigaction, SIGSEGV, NULL, &action, 8));
    ASK((long)action.handler);
    ASK(syscall(SYS_rt_sigaction, SIGSYS, NULL, &action, 8));
    ASK((long)action.handler);
    ASK(syscall(SYS_rt_sigsuspend, NOWHERE, 8));
    ASK(syscall(SYS_rt_sigsuspend, &no_signals, 4));
    ASK(syscall(SYS_sigaltstack, NOWHERE, NULL));
    ASK(syscall(SYS_sigaltstack, &small, NULL));
    ASK(syscall(SYS_sigaltstack, &odd, NULL));
    ASK(syscall(SYS_sigaltstack, NULL, NOWHERE));
    ASK(syscall(SYS_sigaltstack, NULL, &stack));
    ASK((long)stack.ss_flags);
    ASK(syscall(SYS_signalfd4, -1, &no_signals, 4, 0));
}
