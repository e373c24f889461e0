/* clone(2) with a stack for the child, of a thread that runs on a kernel thread of its own: the child has a copy of the memory
   or shares it, and may make threads if it has its own. */
#include "case.h"
#include <linux/capability.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char stack[1 << 18] __attribute__((aligned(16)));
static volatile int shared;

static void *in_child(void *of_creator)
{
    return (void *)(long)(getpid() != *(pid_t *)of_creator);
}

static int child(void *of_creator)
{
    shared++;
    return join(start(in_child, of_creator)) == NULL ? 9 : 7;
}

static int child_that_shares(void *of_creator)
{
    shared++;
    return getpid() == *(pid_t *)of_creator ? 9 : 7;
}

static void makes(const char *who, int (*begin)(void *), int flags, int is_shared)
{
    pid_t own = getpid();
    int status = -1, before = shared;
    pid_t made = clone(begin, stack + sizeof stack, flags | SIGCHLD, &own);
    int error = errno;
    check("makes", made > 0, "%s, flags %x: errno %d", who, flags, error);
    if (made <= 0) return;
    MUST(waitpid(made, &status, 0) != made);
    int has_ended = WIFEXITED(status) && WEXITSTATUS(status) == 7;
    check("ends", has_ended, "%s, flags %x: status %x", who, flags, status);
    check("memory", shared == before + is_shared, "%s, flags %x: %d", who, flags, shared - before);
}

static void *body(void *who)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    MUST((int)syscall(SYS_capget, &header, data));
    data[0].effective = data[1].effective = 0;
    MUST((int)syscall(SYS_capset, &header, data));
    makes(who, child, 0, 0);
    makes(who, child, CLONE_FILES, 0);
    makes(who, child_that_shares, CLONE_VM, 1);
    makes(who, child_that_shares, CLONE_VM | CLONE_VFORK, 1);
    errno = 0;
    pid_t none = clone(child, stack + sizeof stack, CLONE_NEWNET | SIGCHLD, NULL);
    check("refused", none == -1 && errno == EPERM, "%s: %d, errno %d", (char *)who, none, errno);
    return NULL;
}

int main(void)
{
    join(start(body, "thread"));
    body("first thread");
    return verdict();
}
