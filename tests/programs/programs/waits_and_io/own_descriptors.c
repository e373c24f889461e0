/* A thread that gets a table of descriptors of its own (unshare(2) with CLONE_FILES, close_range(2) with
 * CLOSE_RANGE_UNSHARE) changes that one alone, wherever it runs: what it closes, replaces or opens there the others do not
 * see. */
#include "crowd.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#define UNSHARE 2
static int ends[2], other_ends[2], watched;

static int is_open(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

/* Of the thread's own table; closed, `ends` is at the most another file there. */
static long uses_own(void)
{
    long wrong = 0;
    char byte = 0;
    for (int i = 0; i < 50; i++) {
        usleep(300);
        int made = open("/dev/null", O_RDWR);
        wrong += made < 0 || !is_open(made);
        wrong += dup2(made, 40) != 40 || write(40, "x", 1) != 1;
        wrong += dup2(other_ends[1], 41) != 41 || write(41, "y", 1) != 1;
        wrong += read(other_ends[0], &byte, 1) != 1 || byte != 'y';
        wrong += close(40) != 0 || close(41) != 0 || close(made) != 0;
    }
    return wrong;
}

static void *unshares(void *unused)
{
    (void)unused;
    if (unshare(CLONE_FILES) != 0)
        return (void *)1000;
    long wrong = close(ends[0]) != 0 || close(ends[1]) != 0 || is_open(ends[0]);
    wrong += epoll_ctl(watched, EPOLL_CTL_ADD, other_ends[0], &(struct epoll_event){.events = EPOLLIN}) != 0;
    wrong += epoll_ctl(watched, EPOLL_CTL_DEL, other_ends[0], NULL) != 0;
    return (void *)(wrong + uses_own());
}

static void *closes_range(void *unused)
{
    (void)unused;
    int high = ends[0] > ends[1] ? ends[0] : ends[1], low = ends[0] < ends[1] ? ends[0] : ends[1];
    if (syscall(SYS_close_range, low, high, UNSHARE) != 0)
        return (void *)1000;
    long wrong = is_open(ends[0]) + is_open(ends[1]) + uses_own();
    wrong += syscall(SYS_close_range, 3, ~0U, UNSHARE) != 0;
    return (void *)(wrong + is_open(other_ends[0]) + is_open(watched));
}

static void *closes_all(void *unused)
{
    (void)unused;
    if (syscall(SYS_close_range, 3, ~0U, UNSHARE) != 0)
        return (void *)1000;
    long wrong = is_open(ends[0]) + is_open(other_ends[0]) + is_open(watched);
    int made = open("/dev/null", O_RDWR);
    for (int i = 0; i < 20; i++) {
        usleep(300);
        wrong += !is_open(made);
    }
    return (void *)(wrong + (made < 0));
}

/* What the others have is there, and does what it did. */
static long shared_is_whole(void)
{
    char byte = 0;
    struct pollfd asked = {.fd = ends[0], .events = POLLIN};
    long wrong = !is_open(ends[0]) + !is_open(ends[1]) + !is_open(other_ends[0]) + !is_open(watched);
    wrong += is_open(40) + is_open(41);
    wrong += write(ends[1], "z", 1) != 1;
    wrong += poll(&asked, 1, -1) != 1;
    wrong += read(ends[0], &byte, 1) != 1 || byte != 'z';
    return wrong;
}

static void *looks(void *unused)
{
    long wrong = 0;
    for (int i = 0; i < 30; i++) {
        wrong += shared_is_whole();
        usleep(300);
    }
    return unused == NULL ? (void *)wrong : NULL;
}

static void one(const char *name, void *(*body)(void *))
{
    pthread_t watcher = start(looks, NULL);
    long wrong = (long)join(start(body, NULL));
    wrong += 1000 * (long)join(watcher) + 100000 * (long)join(start(looks, NULL));
    check(name, wrong == 0, "%ld wrong", wrong);
}

int main(void)
{
    MUST(pipe(ends));
    MUST(pipe(other_ends));
    watched = epoll_create1(0);
    begin_crowd();
    one("unshared", unshares);
    one("range_unshared", closes_range);
    one("all_unshared", closes_all);
    end_crowd();
    return verdict();
}
