/* Rings of io_uring(7) whose descriptors a thread has registered, or that have no other: the thread names them by their
 * number wherever it runs, and nobody else does. Rings that begin disabled, that the kernel polls, that share their
 * workers, and requests under a registered identity. */
#include "case.h"
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum {
    COOP_TASKRUN = 1 << 8,
    SINGLE_ISSUER = 1 << 12,
    DEFER_TASKRUN = 1 << 13,
    NO_MMAP = 1 << 14,
    FD_ONLY = 1 << 15,
    REGISTER_RINGS = 20,
    UNREGISTER_RINGS = 21,
    REGISTERED_RING = 1 << 4,
    ROUNDS = 200,
};

struct ring {
    int fd;
    unsigned how;
    struct io_uring_params params;
    char *rings;
    struct io_uring_sqe *entries;
};

#define SQ(ring, field) ((atomic_uint *)((ring)->rings + (ring)->params.sq_off.field))
#define CQ(ring, field) ((atomic_uint *)((ring)->rings + (ring)->params.cq_off.field))

static int supported = 1;

static void *memory(void)
{
    void *pages = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(pages == MAP_FAILED);
    return pages;
}

/* Where there is no descriptor the rings are in memory of the program's. */
static int ring_open(struct ring *ring, unsigned flags, int other)
{
    memset(ring, 0, sizeof *ring);
    ring->params.flags = flags;
    ring->params.wq_fd = other;
    if (flags & NO_MMAP) {
        ring->rings = memory();
        ring->entries = memory();
        /* The last words, which older headers have no name for. */
        ((uint64_t *)(&ring->params.cq_off + 1))[-1] = (uintptr_t)ring->rings;
        ((uint64_t *)(&ring->params.sq_off + 1))[-1] = (uintptr_t)ring->entries;
        ring->how = REGISTERED_RING;
    }
    ring->fd = syscall(SYS_io_uring_setup, 8, &ring->params);
    if (ring->fd < 0)
        return -errno;
    if (flags & NO_MMAP)
        return 0;
    size_t size = ring->params.cq_off.cqes + ring->params.cq_entries * sizeof(struct io_uring_cqe);
    int access = PROT_READ | PROT_WRITE;
    ring->rings = mmap(NULL, size > 4096 ? size : 4096, access, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
    ring->entries = mmap(NULL, 4096, access, MAP_SHARED, ring->fd, IORING_OFF_SQES);
    return ring->rings == MAP_FAILED || ring->entries == MAP_FAILED ? -errno : 0;
}

static int registers(int operation, int fd, unsigned offset, unsigned data)
{
    struct io_uring_rsrc_update update = {.offset = offset, .data = data};
    int answer = syscall(SYS_io_uring_register, fd, operation, &update, 1);
    return answer == 1 ? (int)update.offset : answer < 0 ? -errno : -1000;
}

static struct io_uring_sqe *put(struct ring *ring, int operation, int file, void *data, unsigned length)
{
    unsigned tail = *SQ(ring, tail), mask = *SQ(ring, ring_mask);
    struct io_uring_sqe *entry = &ring->entries[tail & mask];
    memset(entry, 0, sizeof *entry);
    entry->opcode = operation;
    entry->fd = file;
    entry->addr = (uintptr_t)data;
    entry->len = length;
    entry->off = -1UL;
    ((unsigned *)SQ(ring, array))[tail & mask] = tail & mask;
    atomic_store(SQ(ring, tail), tail + 1);
    return entry;
}

static int enter(struct ring *ring, unsigned submit, unsigned wait)
{
    unsigned flags = ring->how | (wait ? IORING_ENTER_GETEVENTS : 0) |
                     (ring->params.flags & IORING_SETUP_SQPOLL ? IORING_ENTER_SQ_WAKEUP : 0);
    int answer = syscall(SYS_io_uring_enter, ring->fd, submit, wait, flags, NULL, 0);
    return answer < 0 ? -errno : answer;
}

static int take(struct ring *ring)
{
    while (*CQ(ring, head) == atomic_load(CQ(ring, tail))) {
        int answer = enter(ring, 0, 1);
        if (answer < 0 && answer != -EINTR)
            return answer;
    }
    unsigned head = *CQ(ring, head);
    int result = ((struct io_uring_cqe *)CQ(ring, cqes))[head & *CQ(ring, ring_mask)].res;
    atomic_store(CQ(ring, head), head + 1);
    return result;
}

/* Bytes through a pipe, with waits of other kinds in between. The number of rounds that went wrong. */
static int transfers(struct ring *ring, int rounds)
{
    int ends[2], wrong = 0;
    MUST(pipe(ends));
    for (int round = 0; round < rounds; round++) {
        char in = 0, out = (char)(round + 1);
        struct timespec moment = {.tv_nsec = 100000};
        put(ring, IORING_OP_READ, ends[0], &in, 1);
        wrong += enter(ring, 1, 0) != 1;
        sched_yield();
        if (round % 8 == 0)
            syscall(SYS_clock_nanosleep, CLOCK_TAI, 0, &moment, NULL);
        put(ring, IORING_OP_WRITE, ends[1], &out, 1);
        wrong += enter(ring, 1, 2) != 1;
        wrong += take(ring) != 1;
        wrong += take(ring) != 1;
        wrong += in != out;
    }
    close(ends[0]);
    close(ends[1]);
    return wrong;
}

static void *names(void *ring)
{
    return (void *)(long)(enter(ring, 0, 0) < 0);
}

/* Registers a ring, and names it by its number only. Threads that it makes cannot. */
static void *registered(void *flags)
{
    struct ring ring;
    long wrong = 0;
    wrong += ring_open(&ring, (unsigned)(long)flags, 0) != 0;
    wrong += transfers(&ring, 10);
    int own = ring.fd, number = registers(REGISTER_RINGS, own, -1U, own);
    wrong += number != 0;
    wrong += registers(REGISTER_RINGS, own, 5, own) != 5;
    wrong += registers(REGISTER_RINGS, own, 99, own) != -EINVAL;
    wrong += registers(REGISTER_RINGS, own, -1U, 9999) != -EBADF;
    ring.fd = number;
    ring.how = REGISTERED_RING;
    wrong += transfers(&ring, ROUNDS);
    wrong += join(start(names, &ring)) == NULL;
    ring.fd = 5;
    wrong += transfers(&ring, 10);
    wrong += registers(UNREGISTER_RINGS, own, 5, 0) != 5;
    wrong += enter(&ring, 0, 0) != -EBADF;
    ring.fd = own;
    ring.how = 0;
    wrong += transfers(&ring, 10);
    close(own);
    return (void *)wrong;
}

/* A ring without a descriptor. */
static void *unnamed(void *unused)
{
    struct ring ring;
    (void)unused;
    int answer = ring_open(&ring, NO_MMAP | FD_ONLY | SINGLE_ISSUER | DEFER_TASKRUN, 0);
    if (answer != 0)
        return (void *)(long)(answer != -EINVAL || supported);
    return (void *)(long)(transfers(&ring, ROUNDS) + (join(start(names, &ring)) == NULL));
}

/* Rings of other kinds, and a wrong call. */
static void *others(void *unused)
{
    struct ring ring, other;
    long wrong = 0;
    (void)unused;
    wrong += ring_open(&ring, IORING_SETUP_R_DISABLED | SINGLE_ISSUER | COOP_TASKRUN, 0) != 0;
    wrong += enter(&ring, 0, 0) != -EBADFD;
    wrong += syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0) != 0;
    wrong += transfers(&ring, 10);
    wrong += ring_open(&other, IORING_SETUP_ATTACH_WQ, ring.fd) != 0;
    wrong += transfers(&other, 10);
    int identity = syscall(SYS_io_uring_register, other.fd, IORING_REGISTER_PERSONALITY, NULL, 0);
    wrong += identity <= 0;
    put(&other, IORING_OP_NOP, -1, NULL, 0)->personality = (unsigned short)identity;
    wrong += enter(&other, 1, 1) != 1 || take(&other) != 0;
    wrong += syscall(SYS_io_uring_register, other.fd, IORING_UNREGISTER_PERSONALITY, NULL, identity) != 0;
    put(&other, IORING_OP_NOP, -1, NULL, 0)->personality = (unsigned short)identity;
    wrong += enter(&other, 1, 1) != 1 || take(&other) != -EINVAL;
    close(ring.fd);
    close(other.fd);
    wrong += ring_open(&ring, IORING_SETUP_SQPOLL, 0) != 0;
    ring.params.flags |= IORING_SETUP_SQPOLL;
    for (int round = 0; round < 20; round++) {
        put(&ring, IORING_OP_NOP, -1, NULL, 0);
        wrong += enter(&ring, 1, 0) != 1 || take(&ring) != 0;
    }
    close(ring.fd);
    wrong += registers(REGISTER_RINGS, 9999, -1U, 9999) != -EBADF;
    return (void *)wrong;
}

int main(void)
{
    struct ring first, probe;
    int answer = ring_open(&first, SINGLE_ISSUER | DEFER_TASKRUN, 0);
    if (answer != 0) {
        check("no such rings here", 1, "%d", answer);
        return verdict();
    }
    answer = ring_open(&probe, NO_MMAP, 0);
    supported = answer != -EINVAL;
    /* Before there are threads. */
    int own = first.fd;
    first.fd = registers(REGISTER_RINGS, own, -1U, own);
    check("registered alone", first.fd == 0, "%d", first.fd);
    first.how = REGISTERED_RING;
    int wrong = transfers(&first, ROUNDS);
    check("used alone", wrong == 0, "%d wrong", wrong);
    pthread_t threads[6];
    for (int i = 0; i < 6; i++)
        threads[i] = i < 3   ? start(registered, (void *)(long)(i == 0 ? 0 : SINGLE_ISSUER | (i == 1 ? 0 : DEFER_TASKRUN)))
                     : i < 5 ? start(unnamed, NULL)
                             : start(others, NULL);
    wrong = transfers(&first, ROUNDS);
    check("used beside threads", wrong == 0, "%d wrong", wrong);
    for (int i = 0; i < 6; i++) {
        long count = (long)join(threads[i]);
        check(i < 3 ? "registered" : i < 5 ? "without a descriptor" : "others", count == 0, "thread %d: %ld wrong", i, count);
    }
    return verdict();
}
