/* A filter, as containers have, forbids the calls by which the runtime learns whether a read would wait. The program
 * reads and writes all the same. */
#include "case.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { SIZE = 1 << 20 };

static char source[SIZE], target[SIZE];
static int ends[2];

static void forbid(unsigned error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_preadv2, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwritev2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void *fills(void *unused)
{
    (void)unused;
    settle();
    struct iovec parts[2] = {{source, 1000}, {source + 1000, SIZE / 2 - 1000}};
    long sent = writev(ends[0], parts, 2);
    return (void *)(sent + write(ends[0], source + SIZE / 2, SIZE / 2));
}

static void moves(const char *name, const char *error)
{
    char verdict[80];
    memset(target, 0, SIZE);
    pthread_t thread = start(fills, NULL);
    size_t got = 0;
    long more = 1;
    int failed = 0;
    while (got < SIZE && more > 0) {
        struct iovec parts[2] = {{target + got, 1}, {target + got + 1, SIZE - got - 1}};
        more = got % 3 == 1 ? readv(ends[1], parts, SIZE - got > 1 ? 2 : 1) : read(ends[1], target + got, SIZE - got);
        failed = more < 0 ? errno : 0;
        got += more > 0 ? (size_t)more : 0;
    }
    long sent = (long)join(thread);
    snprintf(verdict, sizeof verdict, "%s_%s", name, error);
    check(verdict, got == SIZE && sent == SIZE && memcmp(source, target, SIZE) == 0, "%ld sent, %zu received, errno %d",
          sent, got, failed);
    close(ends[0]);
    close(ends[1]);
}

static void *counts(void *unused)
{
    (void)unused;
    unsigned long long count = 0;
    long got = read(ends[0], &count, sizeof count);
    return (void *)(got == sizeof count ? (long)count : -errno);
}

static void all(const char *name, unsigned error)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        forbid(error);
        int both[2];
        MUST(pipe(both));
        ends[0] = both[1];
        ends[1] = both[0];
        moves("pipe", name);
        MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
        moves("socket", name);
        ends[0] = eventfd(0, 0);
        pthread_t thread = start(counts, NULL);
        settle();
        unsigned long long three = 3;
        check("count", write(ends[0], &three, sizeof three) == sizeof three, "errno %d", errno);
        long count = (long)join(thread);
        check("event", count == 3, "%ld", count);
        exit(verdict());
    }
    int status = -1;
    waitpid(child, &status, 0);
    check(name, status == 0, "%#x", (unsigned)status);
}

int main(void)
{
    for (int i = 0; i < SIZE; i++) {
        source[i] = (char)(i * 7 + i / 251);
    }
    all("ENOSYS", ENOSYS);
    all("EPERM", EPERM);
    return verdict();
}
