/* What the kernel keeps with a thread, option by option: a thread that sets it keeps it wherever it runs, and no other
 * thread gets it. What this kernel or the caller's privileges do not allow changes nothing, which is looked at too. */
#include "crowd.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/io.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#define PR_GET_IO_FLUSHER 58
#endif
#define ARCH_GET_CPUID 0x1011
#define ARCH_SET_CPUID 0x1012
#define PORT 0x80

static __thread sigjmp_buf faulted;

static void faults(int signal)
{
    (void)signal;
    siglongjmp(faulted, 1);
}

static long set_mce(void) { return prctl(PR_MCE_KILL, PR_MCE_KILL_SET, PR_MCE_KILL_EARLY, 0, 0); }
static long get_mce(void) { return prctl(PR_MCE_KILL_GET, 0, 0, 0, 0); }
static long set_flusher(void) { return prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0); }
static long get_flusher(void) { return prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0); }
static long set_speculation(void)
{
    return prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_DISABLE, 0, 0);
}
static long get_speculation(void)
{
    return prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0);
}
static long set_cpuid(void) { return syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0); }
static long get_cpuid(void) { return syscall(SYS_arch_prctl, ARCH_GET_CPUID, 0); }
static long set_ports(void) { return ioperm(PORT, 1, 1); }
static long get_ports(void)
{
    if (sigsetjmp(faulted, 1) != 0)
        return 0;
    outb(0, PORT);
    return 1;
}
static long set_all_ports(void) { return iopl(3); }
static long set_tsc(void) { return prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0); }
static long get_tsc(void)
{
    if (sigsetjmp(faulted, 1) != 0)
        return 1;
    __builtin_ia32_rdtsc();
    return 0;
}

static long put_key(int ring, const char *name)
{
    return syscall(SYS_add_key, "user", name, "x", 1L, (long)ring) < 0 ? -1 : 0;
}
static long has_key(int ring, const char *name)
{
    /* Without the keyring there is none, and none is made. */
    if (syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, (long)ring, 0L) < 0)
        return 0;
    return syscall(SYS_keyctl, KEYCTL_SEARCH, (long)ring, "user", name, 0L) >= 0;
}
static long set_thread_key(void) { return put_key(KEY_SPEC_THREAD_KEYRING, "upcall:thread"); }
static long get_thread_key(void) { return has_key(KEY_SPEC_THREAD_KEYRING, "upcall:thread"); }
static long set_process_key(void) { return put_key(KEY_SPEC_PROCESS_KEYRING, "upcall:process"); }
static long get_process_key(void) { return has_key(KEY_SPEC_PROCESS_KEYRING, "upcall:process"); }

/* One that the process has is everybody's. */
static long set_session_key(void)
{
    long own = syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, (long)KEY_SPEC_SESSION_KEYRING, 0L);
    long users = syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, (long)KEY_SPEC_USER_SESSION_KEYRING, 0L);
    return own != users ? -1 : put_key(KEY_SPEC_SESSION_KEYRING, "upcall:session");
}
static long get_session_key(void) { return has_key(KEY_SPEC_SESSION_KEYRING, "upcall:session"); }

/* Namespaces and what CLONE_FS shares; each is asked as somebody who has it would meet it. */
static long set_directory(void) { return unshare(CLONE_FS) != 0 ? -1 : chdir("/proc"); }
static long get_directory(void)
{
    char directory[16] = "";
    return getcwd(directory, sizeof directory) != NULL && strcmp(directory, "/proc") == 0;
}
static long set_host(void) { return unshare(CLONE_NEWUTS) != 0 ? -1 : sethostname("upcall-own", 10); }
static long get_host(void)
{
    char name[65] = "";
    return gethostname(name, sizeof name) == 0 && strcmp(name, "upcall-own") == 0;
}
static long set_landlock(void)
{
    struct {
        uint64_t files;
    } handled = {1 << 2};
    int rules = (int)syscall(444, &handled, sizeof handled, 0);
    if (rules < 0)
        return -1;
    long answer = syscall(446, rules, 0);
    close(rules);
    return answer;
}
static long get_landlock(void)
{
    int file = open("/proc/version", O_RDONLY);
    if (file < 0)
        return 1;
    close(file);
    return 0;
}
#define NO_CALL 9999
static long set_filter(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NO_CALL, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EDOM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, code};
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0L, &filter);
}
static long get_filter(void) { return syscall(NO_CALL) == -1 && errno == EDOM; }
static long set_personality(void)
{
    return personality((unsigned long)personality(0xffffffff) | ADDR_NO_RANDOMIZE) < 0 ? -1 : 0;
}
static long get_personality(void) { return personality(0xffffffff) & ADDR_NO_RANDOMIZE; }
static long set_io(void) { return syscall(SYS_ioprio_set, 1, 0, 3 << 13); }
static long get_io(void) { return syscall(SYS_ioprio_get, 1, 0) == 3 << 13; }
static long set_policy(void)
{
    unsigned long nodes = 1;
    return syscall(SYS_set_mempolicy, 1L, &nodes, 8L * sizeof nodes);
}
static long get_policy(void)
{
    int mode = 0;
    return syscall(SYS_get_mempolicy, &mode, NULL, 0L, NULL, 0L) == 0 && mode == 1;
}

static const struct state {
    const char *name;
    long (*set)(void);
    long (*get)(void);
} states[] = {
    {"machine_checks", set_mce, get_mce},
    {"io_flusher", set_flusher, get_flusher},
    {"speculation", set_speculation, get_speculation},
    {"cpuid_faults", set_cpuid, get_cpuid},
    {"port", set_ports, get_ports},
    {"all_ports", set_all_ports, get_ports},
    {"time_stamps_fault", set_tsc, get_tsc},
    {"thread_keyring", set_thread_key, get_thread_key},
    {"process_keyring", set_process_key, get_process_key},
    {"session_keyring", set_session_key, get_session_key},
    {"directory", set_directory, get_directory},
    {"host_name", set_host, get_host},
    {"landlock", set_landlock, get_landlock},
    {"filter", set_filter, get_filter},
    {"personality", set_personality, get_personality},
    {"io_priority", set_io, get_io},
    {"memory_policy", set_policy, get_policy},
};

static const struct state *asked;
static long before, others_wrong;
static atomic_int looks;

/* Other threads look while it is set, on whatever they run. */
static void *other(void *unused)
{
    while (atomic_load(&looks)) {
        if (asked->get() != before)
            __atomic_fetch_add(&others_wrong, 1, __ATOMIC_RELAXED);
        usleep(300);
    }
    return unused;
}

static void *body(void *unused)
{
    (void)unused;
    long lost = 0;
    int is_set = asked->set() == 0;
    long own = asked->get();
    for (int i = 0; i < 100; i++) {
        lost += asked->get() != (is_set ? own : before);
        usleep(300);
    }
    atomic_store(&looks, 0);
    return (void *)lost;
}

int main(void)
{
    struct sigaction action = {.sa_handler = faults, .sa_flags = SA_NODEFER};
    MUST(sigaction(SIGSEGV, &action, NULL));
    begin_crowd();
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        pthread_t others[3];
        asked = &states[i];
        before = asked->get();
        others_wrong = 0;
        atomic_store(&looks, 1);
        for (int j = 0; j < 3; j++)
            others[j] = start(other, NULL);
        long lost = (long)join(start(body, NULL));
        for (int j = 0; j < 3; j++)
            join(others[j]);
        check(asked->name, lost == 0 && others_wrong == 0, "%ld times lost, %ld times another thread's", lost,
              others_wrong);
    }
    end_crowd();
    return verdict();
}
