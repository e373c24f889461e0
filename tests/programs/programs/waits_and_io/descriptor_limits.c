/* The limit of descriptors is lowered, to none at last: what is open works on, threads begin, wait and end;
 * and in a child that starts with a lower limit than its parent had. */
#include "case.h"
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int ends[2], pair[2], instance;

static void *reads(void *unused)
{
    char byte = 0;
    (void)unused;
    return (void *)(long)(read(ends[0], &byte, 1) == 1 && byte == 'p');
}

static void *receives(void *unused)
{
    char byte = 0;
    (void)unused;
    return (void *)(long)(recv(pair[0], &byte, 1, 0) == 1 && byte == 's');
}

static void *waits(void *unused)
{
    struct epoll_event event;
    (void)unused;
    return (void *)(long)(UNSTOPPED(epoll_wait(instance, &event, 1, -1)) == 1 && event.data.u32 == 5);
}

static void *sleeps(void *unused)
{
    (void)unused;
    settle();
    return (void *)1;
}

static void limit(rlim_t most)
{
    struct rlimit files;
    MUST(getrlimit(RLIMIT_NOFILE, &files));
    files.rlim_cur = most;
    MUST(setrlimit(RLIMIT_NOFILE, &files));
}

/* How many of four threads did what they should. */
static long works(void)
{
    pthread_t threads[] = {start(reads, NULL), start(receives, NULL), start(waits, NULL),
                           start(sleeps, NULL)};
    settle();
    MUST(write(ends[1], "p", 1) != 1);
    MUST(send(pair[1], "s", 1, 0) != 1);
    long right = 0;
    for (int i = 0; i < 4; i++)
        right += (long)join(threads[i]);
    return right;
}

/* Opens as many as there may be; each works. */
static long opens(void)
{
    int files[64], count = 0;
    long right = 0;
    while (count < 64 && (files[count] = open("/dev/zero", O_RDONLY)) >= 0)
        count++;
    for (int i = 0; i < count; i++) {
        char byte = 1;
        right += read(files[i], &byte, 1) == 1 && byte == 0;
        close(files[i]);
    }
    return count > 4 && right == count;
}

/* In a child, with so many descriptors at most. */
static void child(const char *name, rlim_t most)
{
    fflush(stdout);
    pid_t pid = fork();
    MUST(pid < 0);
    if (pid == 0) {
        limit(most);
        long right = 0;
        for (int i = 0; i < 5; i++)
            right += works() + opens();
        _exit(right == 25 ? 0 : 10 + (int)right);
    }
    int status;
    MUST(waitpid(pid, &status, 0) != pid);
    check(name, status == 0, "status %x", status);
}

int main(void)
{
    int writable[2];
    struct epoll_event event = {EPOLLOUT, {.u32 = 5}};
    MUST(pipe(ends));
    MUST(pipe(writable));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    instance = epoll_create1(0);
    MUST(epoll_ctl(instance, EPOLL_CTL_ADD, writable[1], &event));
    child("child_before", 40);
    long right = works();
    check("limits_before", right == 4, "%ld", right);
    child("child_after", 40);
    limit(40);
    right = works();
    check("limit_40", right == 4, "%ld", right);
    limit(0);
    right = works();
    check("limit_0", right == 4, "%ld", right);
    return verdict();
}
