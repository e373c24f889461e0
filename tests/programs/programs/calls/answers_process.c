/* What calls about a process and its memory answer to right and wrong requests. */
#include "answers.h"
#include <fcntl.h>
#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

static void process(void)
{
    char name[32] = "answers";
    void *head;
    size_t length;
    int word;
    struct rlimit64 limit;
    struct utsname system;
    ASK(syscall(SYS_prctl, PR_SET_NAME, NOWHERE));
    ASK(syscall(SYS_prctl, PR_SET_NAME, "a name that is longer than sixteen"));
    ASK(syscall(SYS_prctl, PR_GET_NAME, name));
    printf("%s: %s\n", stage, name);
    ASK(syscall(SYS_prctl, PR_GET_NAME, NOWHERE));
    ASK(syscall(SYS_prctl, 7777, 0));
    ASK(syscall(SYS_prctl, PR_SET_PDEATHSIG, 65));
    ASK(syscall(SYS_prctl, PR_SET_PDEATHSIG, 0));
    ASK(syscall(SYS_prctl, PR_GET_PDEATHSIG, &word));
    ASK(syscall(SYS_prctl, PR_GET_PDEATHSIG, NOWHERE));
    ASK(syscall(SYS_prctl, PR_SET_TIMERSLACK, 50000));
    ASK(syscall(SYS_prctl, PR_GET_TIMERSLACK));
    ASK(syscall(SYS_prctl, PR_GET_DUMPABLE));
    ASK(syscall(SYS_prctl, PR_SET_DUMPABLE, 7));
    ASK(syscall(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    ASK(syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    ASK(syscall(SYS_prctl, PR_GET_SECCOMP));
    ASK(syscall(SYS_prctl, PR_GET_KEEPCAPS));
    ASK(syscall(SYS_prctl, PR_SET_KEEPCAPS, 7));
    ASK(syscall(SYS_prctl, PR_GET_SECUREBITS));
    ASK(syscall(SYS_prctl, PR_CAPBSET_READ, 10000));
    ASK(syscall(SYS_prctl, PR_CAPBSET_DROP, 10000));
    ASK(syscall(SYS_prctl, PR_GET_TID_ADDRESS, NOWHERE));
    ASK(syscall(SYS_prctl, PR_GET_TID_ADDRESS, &head));
    ASK(syscall(SYS_prctl, PR_GET_TSC, &word));
    ASK(syscall(SYS_prctl, PR_GET_TIMING));
    ASK(syscall(SYS_arch_prctl, 0x7777, 0));
    ASK(syscall(SYS_arch_prctl, 0x1003, NOWHERE));
    ASK(syscall(SYS_arch_prctl, 0x1004, &head));
    ASK((long)head);
    ASK(syscall(SYS_get_robust_list, 0, &head, &length));
    ASK((long)length);
    ASK(syscall(SYS_get_robust_list, 0, NOWHERE, &length));
    ASK(syscall(SYS_get_robust_list, -1, &head, &length));
    ASK(syscall(SYS_get_robust_list, NO_ID, &head, &length));
    ASK(syscall(SYS_set_robust_list, head, 77));
    ASK(syscall(SYS_set_robust_list, head, 24));
    ASK(syscall(SYS_capget, NOWHERE, NULL));
    ASK(syscall(SYS_capset, NOWHERE, NULL));
    ASK(syscall(SYS_setgroups, -1, NULL));
    ASK(syscall(SYS_setgroups, 1, NOWHERE));
    ASK(syscall(SYS_setuid, -1));
    ASK(syscall(SYS_setresuid, -1, -1, -1));
    ASK(syscall(SYS_setreuid, -1, -1));
    ASK(syscall(SYS_setregid, -1, -1));
    ASK(syscall(SYS_setresgid, -1, -1, -1));
    ASK(syscall(SYS_setgid, -1));
    ASK(syscall(SYS_setfsuid, -1) == geteuid());
    ASK(syscall(SYS_setfsgid, -1) == getegid());
    ASK(syscall(SYS_getresuid, NOWHERE, NOWHERE, NOWHERE));
    ASK(syscall(SYS_landlock_restrict_self, -1, 0));
    ASK(syscall(SYS_landlock_restrict_self, -1, 77));
    ASK(syscall(SYS_set_mempolicy, 77, NULL, 0));
    ASK(syscall(SYS_kcmp, NO_ID, NO_ID, 0, 0L, 0L));
    ASK(syscall(SYS_kcmp, getpid(), getpid(), 0, 0L, 0L));
    ASK(syscall(SYS_migrate_pages, NO_ID, 0L, NULL, NULL));
    ASK(syscall(SYS_move_pages, NO_ID, 0L, NULL, NULL, NULL, 0L));
    ASK(syscall(SYS_ioprio_get, 7, 0));
    ASK(syscall(SYS_ioprio_get, 1, NO_ID));
    ASK(syscall(SYS_ioprio_set, 7, 0, 0));
    ASK(syscall(SYS_keyctl, 7777, 0));
    ASK(syscall(SYS_keyctl, 11, -1, NULL, 0) != -1 || errno == ENOKEY || errno == ENOSYS);
    ASK(syscall(SYS_add_key, NOWHERE, NULL, NULL, 0, 0));
    ASK(syscall(SYS_add_key, "user", NULL, NULL, 0, 0));
    ASK(syscall(SYS_request_key, NOWHERE, NULL, NULL, 0));
    ASK(syscall(SYS_request_key, "user", "upcall:none", NULL, -1));
    ASK(syscall(SYS_ioperm, 70000L, 1L, 1));
    ASK(syscall(SYS_iopl, 7));
    ASK(syscall(SYS_perf_event_open, NOWHERE, 0, -1, -1, 0L));
    ASK(syscall(SYS_close_range, 5, 4, 2));
    ASK(syscall(SYS_close_range, 5, 6, 77));
    ASK(syscall(SYS_prctl, PR_SET_TSC, 77));
    ASK(syscall(SYS_prctl, PR_MCE_KILL, 77, 0, 0, 0));
    ASK(syscall(SYS_prctl, PR_MCE_KILL, PR_MCE_KILL_CLEAR, 7, 0, 0));
    ASK(syscall(SYS_arch_prctl, 0x1012, 77));
    ASK(syscall(SYS_getpgid, NO_ID));
    ASK(syscall(SYS_getpgid, 0) == getpgrp());
    ASK(syscall(SYS_getsid, NO_ID));
    ASK(syscall(SYS_setpgid, NO_ID, 0));
    ASK(syscall(SYS_setpgid, 0, -1));
    ASK(syscall(SYS_process_vm_readv, NO_ID, NULL, 0L, NULL, 0L, 0L));
    ASK(syscall(SYS_process_vm_writev, getpid(), NULL, 0L, NULL, 0L, 77L));
    ASK(syscall(SYS_pidfd_send_signal, -1, 0, NULL, 0));
    ASK(syscall(SYS_getppid) == getppid());
    ASK(syscall(SYS_getuid) == getuid());
    ASK(syscall(SYS_getgid) == getgid());
    ASK(syscall(SYS_geteuid) == geteuid());
    ASK(syscall(SYS_getegid) == getegid());
    ASK(syscall(SYS_ptrace, 7777, NO_ID, 0, 0));
    ASK(syscall(SYS_ptrace, 7, NO_ID, 0, 0));
    ASK(syscall(SYS_execve, "/nowhere/at/all", NULL, NULL));
    ASK(syscall(SYS_execve, NOWHERE, NULL, NULL));
    ASK(syscall(SYS_execveat, AT_FDCWD, "", NULL, NULL, 0));
    ASK(syscall(SYS_wait4, NO_ID, NULL, WNOHANG, NULL));
    ASK(syscall(SYS_wait4, -1, NULL, 77, NULL));
    ASK(syscall(SYS_waitid, 77, 0, NULL, WEXITED, NULL));
    ASK(syscall(SYS_prlimit64, 0, 77, NULL, &limit));
    ASK(syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, NOWHERE, NULL));
    ASK(syscall(SYS_uname, NOWHERE));
    ASK(syscall(SYS_uname, &system));
    ASK(syscall(SYS_getrandom, NOWHERE, 4, 0));
    ASK(syscall(SYS_getrandom, &word, 4, 77));
    ASK(syscall(SYS_getcpu, NOWHERE, NULL, NULL));
    ASK(syscall(SYS_clone, CLONE_THREAD, 0, 0, 0, 0));
    ASK(syscall(SYS_clone, CLONE_SIGHAND, 0, 0, 0, 0));
    ASK(syscall(SYS_clone3, NULL, 64));
    ASK(syscall(SYS_clone3, NOWHERE, 64));
    ASK(syscall(SYS_clone3, &(struct clone_args){.flags = CLONE_THREAD}, sizeof(struct clone_args)));
    ASK(syscall(SYS_clone3, &(struct clone_args){.flags = 0}, 8));
    ASK(syscall(SYS_clone3, &(struct clone_args){.exit_signal = 1000}, sizeof(struct clone_args)));
    ASK(syscall(SYS_pidfd_open, getpid(), 77));
    ASK(syscall(SYS_pidfd_open, NO_ID, 0));
    ASK(syscall(SYS_unshare, 7));
    ASK(syscall(SYS_pivot_root, NULL, NULL));
    ASK(syscall(SYS_setns, -1, 0));
    ASK(syscall(SYS_membarrier, 777, 0, 0));
    ASK(syscall(SYS_io_uring_setup, 0, NOWHERE));
    ASK(syscall(SYS_io_uring_enter, -1, 0, 0, 0, NULL, 0));
    ASK(syscall(SYS_io_uring_register, -1, 0, NULL, 0));
    ASK(syscall(SYS_personality, 0xffffffff));
    ASK(syscall(SYS_seccomp, 777, 0, NULL));
    ASK(syscall(9999));
}

static void memory(void)
{
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASK(syscall(SYS_mmap, NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASK(syscall(SYS_mmap, NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0));
    ASK(syscall(SYS_mmap, NULL, 4096, PROT_READ, 0, -1, 0));
    ASK(syscall(SYS_mmap, page + 1, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    ASK(syscall(SYS_mmap, page, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    ASK(syscall(SYS_mprotect, page + 1, 4096, PROT_READ));
    ASK(syscall(SYS_mprotect, page, 4096, 0x777));
    ASK(syscall(SYS_mprotect, NOWHERE, 4096, PROT_READ));
    ASK(syscall(SYS_pkey_alloc, 0L, 77L));
    ASK(syscall(SYS_pkey_alloc, 77L, 0L));
    ASK(syscall(SYS_pkey_mprotect, page, 4096, PROT_READ, 77));
    ASK(syscall(SYS_munmap, page + 1, 4096));
    ASK(syscall(SYS_munmap, page, 0));
    ASK(syscall(SYS_mremap, page, 4096, 0, 0));
    ASK(syscall(SYS_madvise, page, 4096, 777));
    ASK(syscall(SYS_shmat, -1, NULL, 0));
    ASK(syscall(SYS_shmdt, page + 1));
    ASK(syscall(SYS_munmap, page, 8192));
    ASK(syscall(SYS_madvise, page, 4096, MADV_NORMAL));
    WORKS(syscall(SYS_brk, 0));
}

static void ask(void)
{
    process();
    memory();
}
