/* Headers of capget(2) and capset(2) that name a thread by its id: the caller's own, before and after it has changed its
   capabilities, and another thread's. */
#include "case.h"
#include <linux/capability.h>
#include <sys/syscall.h>

static pid_t waiting_id;
static pthread_barrier_t barrier;

static long ask(long call, pid_t id, struct __user_cap_data_struct *data)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, id};
    return syscall(call, &header, data);
}

static void checks(const char *who)
{
    pid_t own = (pid_t)syscall(SYS_gettid);
    struct __user_cap_data_struct before[2], data[2], other[2];
    MUST((int)ask(SYS_capget, own, before));
    memcpy(data, before, sizeof data);
    data[0].effective &= ~(1u << CAP_NET_RAW);
    for (int i = 0; i < 2; i++) {
        long set = ask(SYS_capset, own, data);
        check("set_by_id", set == 0, "%s, time %d: errno %d", who, i, errno);
        memset(other, 0xff, sizeof other);
        long got = ask(SYS_capget, own, other);
        int is_same = memcmp(other, data, sizeof data) == 0;
        check("get_by_id", got == 0 && is_same, "%s, time %d: %ld, errno %d", who, i, got, errno);
    }
    memset(other, 0xff, sizeof other);
    long got = ask(SYS_capget, waiting_id, other);
    int is_same = memcmp(other, before, sizeof before) == 0;
    check("get_of_other", got == 0 && is_same, "%s: %ld, errno %d", who, got, errno);
    long set = ask(SYS_capset, waiting_id, data);
    check("set_of_other", set == -1 && errno == EPERM, "%s: %ld, errno %d", who, set, errno);
    struct __user_cap_header_struct header = {1, own};
    got = syscall(SYS_capget, &header, other);
    int is_told = got == -1 && errno == EINVAL && header.version == _LINUX_CAPABILITY_VERSION_3;
    check("version_told", is_told, "%s: %ld, errno %d, version %x", who, got, errno, header.version);
}

static void *waiting(void *unused)
{
    waiting_id = (pid_t)syscall(SYS_gettid);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

static void *body(void *unused)
{
    checks("thread");
    return unused;
}

int main(void)
{
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_t other = start(waiting, NULL);
    pthread_barrier_wait(&barrier);
    join(start(body, NULL));
    checks("first thread");
    pthread_barrier_wait(&barrier);
    join(other);
    return verdict();
}
