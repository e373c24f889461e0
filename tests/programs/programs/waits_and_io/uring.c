/* io_uring(7) by its system calls: rings for one issuer, completions that wait for it, requests that are
 * in flight while their thread does something else, and registered ring descriptors. */
#include "case.h"
#include <errno.h>
#include <linux/io_uring.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif
#ifndef IORING_SETUP_TASKRUN_FLAG
#define IORING_SETUP_TASKRUN_FLAG (1U << 9)
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif
#define ENTRIES 16
#define BLOCKERS 40

struct ring {
    int fd;
    struct io_uring_params params;
    char *sq, *cq;
    struct io_uring_sqe *entries;
};

#define SQ(ring, field) ((atomic_uint *)((ring)->sq + (ring)->params.sq_off.field))
#define CQ(ring, field) ((atomic_uint *)((ring)->cq + (ring)->params.cq_off.field))

static int unknown; /* the kernel does not know the flags, or has no rings for us */
static atomic_int bad, ready;
static sem_t finish;

static int ring_open(struct ring *ring, unsigned flags)
{
    memset(ring, 0, sizeof *ring);
    ring->params.flags = flags;
    ring->fd = syscall(SYS_io_uring_setup, ENTRIES, &ring->params);
    if (ring->fd < 0)
        return -1;
    size_t sq = ring->params.sq_off.array + ring->params.sq_entries * sizeof(unsigned);
    size_t cq = ring->params.cq_off.cqes + ring->params.cq_entries * sizeof(struct io_uring_cqe);
    ring->sq = mmap(NULL, sq, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_SQ_RING);
    ring->cq = mmap(NULL, cq, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, IORING_OFF_CQ_RING);
    ring->entries = mmap(NULL, ring->params.sq_entries * sizeof *ring->entries, PROT_READ | PROT_WRITE, MAP_SHARED,
                         ring->fd, IORING_OFF_SQES);
    return ring->sq == MAP_FAILED || ring->cq == MAP_FAILED || ring->entries == MAP_FAILED ? -1 : 0;
}

static void ring_put(struct ring *ring, int operation, int file, void *data, unsigned length, unsigned long tag)
{
    unsigned tail = atomic_load(SQ(ring, tail)), mask = *SQ(ring, ring_mask);
    struct io_uring_sqe *entry = &ring->entries[tail & mask];
    memset(entry, 0, sizeof *entry);
    entry->opcode = operation;
    entry->fd = file;
    entry->addr = (unsigned long)data;
    entry->len = length;
    entry->off = -1UL;
    entry->user_data = tag;
    ((unsigned *)SQ(ring, array))[tail & mask] = tail & mask;
    atomic_store(SQ(ring, tail), tail + 1);
}

static int ring_enter(struct ring *ring, unsigned submit, unsigned wait)
{
    int answer;
    do
        answer = syscall(SYS_io_uring_enter, ring->fd, submit, wait, wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
    while (answer < 0 && errno == EINTR);
    return answer;
}

static int ring_take(struct ring *ring, unsigned long *tag)
{
    while (atomic_load(CQ(ring, head)) == atomic_load(CQ(ring, tail)))
        if (ring_enter(ring, 0, 1) < 0)
            return -errno;
    unsigned head = atomic_load(CQ(ring, head));
    struct io_uring_cqe *done = (struct io_uring_cqe *)CQ(ring, cqes) + (head & *CQ(ring, ring_mask));
    int result = done->res;
    *tag = done->user_data;
    atomic_store(CQ(ring, head), head + 1);
    return result;
}

/* One ring a thread, and pipes through which it passes bytes to itself. */
static void *transfers(void *arg)
{
    unsigned flags = (unsigned)(long)arg;
    struct ring ring;
    int ends[2];
    MUST(pipe(ends));
    if (ring_open(&ring, flags) != 0 || ring.params.flags != flags) {
        atomic_fetch_add(&bad, 1);
        return NULL;
    }
    for (int round = 0; round < 300; round++) {
        char in = 0, out = (char)round;
        unsigned long tag, seen = 0;
        ring_put(&ring, IORING_OP_READ, ends[0], &in, 1, 1);
        ring_put(&ring, IORING_OP_NOP, -1, NULL, 0, 2);
        if (ring_enter(&ring, 2, 1) != 2)
            atomic_fetch_add(&bad, 1);
        sched_yield();
        ring_put(&ring, IORING_OP_WRITE, ends[1], &out, 1, 4);
        if (ring_enter(&ring, 1, 0) != 1)
            atomic_fetch_add(&bad, 1);
        for (int i = 0; i < 3; i++) {
            if (ring_take(&ring, &tag) != (tag == 2 ? 0 : 1))
                atomic_fetch_add(&bad, 1);
            seen |= tag;
        }
        if (seen != 7 || in != out)
            atomic_fetch_add(&bad, 1);
    }
    return NULL;
}

static struct ring shared;
static char arrived[BLOCKERS];
static int flights[BLOCKERS][2];

/* Submits a read that ends much later, blocks in the kernel, and stays. Where a thread is served by many
 * kernel threads, most of them have nothing left to do then. */
static void *blocks(void *arg)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    long me = (long)arg;
    pthread_mutex_lock(&lock);
    ring_put(&shared, IORING_OP_READ, flights[me][0], &arrived[me], 1, me);
    if (ring_enter(&shared, 1, 0) != 1)
        atomic_fetch_add(&bad, 1);
    pthread_mutex_unlock(&lock);
    struct timespec moment = {.tv_nsec = 20000000};
    syscall(SYS_clock_nanosleep, CLOCK_TAI, 0, &moment, NULL);
    atomic_fetch_add(&ready, 1);
    sem_wait(&finish);
    return NULL;
}

static void in_flight(void)
{
    pthread_t threads[BLOCKERS];
    sem_init(&finish, 0, 0);
    if (ring_open(&shared, 0) != 0) {
        atomic_fetch_add(&bad, 1);
        return;
    }
    for (long i = 0; i < BLOCKERS; i++)
        MUST(pipe(flights[i]));
    for (long i = 0; i < BLOCKERS; i++)
        threads[i] = start(blocks, (void *)i);
    while (atomic_load(&ready) < BLOCKERS)
        usleep(1000);
    for (int i = 0; i < 10; i++)
        settle();
    for (int i = 0; i < BLOCKERS; i++)
        MUST(write(flights[i][1], "y", 1) != 1);
    for (int i = 0; i < BLOCKERS; i++) {
        unsigned long tag = 0;
        int result = ring_take(&shared, &tag);
        if (result != 1 || arrived[tag] != 'y')
            atomic_fetch_add(&bad, 1);
    }
    for (int i = 0; i < BLOCKERS; i++)
        sem_post(&finish);
    for (int i = 0; i < BLOCKERS; i++)
        pthread_join(threads[i], NULL);
}

/* The time limit and the mask of a wait, in memory that the ring knows, and arguments of wrong sizes. */
static void waits_with_arguments(void)
{
    enum { MEM_REGION = 34, TYPE_USER = 1, WAIT_ARG = 1, EXT_ARG_REG = 1 << 6, HAS_TIME = 1, MASK_SIZE = 8 };
    struct ring ring;
    MUST(ring_open(&ring, IORING_SETUP_R_DISABLED));
    uint64_t *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t region[8] = {(uintptr_t)memory, 4096, TYPE_USER}, registers[4] = {(uintptr_t)region, WAIT_ARG};
    int known = syscall(SYS_io_uring_register, ring.fd, MEM_REGION, registers, 1) == 0;
    MUST(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0));
    /* The second one: ten milliseconds. */
    memory[9] = 10000000;
    memory[10] = (uint64_t)HAS_TIME << 32;
    unsigned flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
    long answer = syscall(SYS_io_uring_enter, ring.fd, 0, 1, flags | EXT_ARG_REG, 64L, 64L);
    check("waits as the region says", !known || (answer == -1 && errno == ETIME), "%ld, errno %d", answer, errno);
    struct io_uring_getevents_arg wrong = {.sigmask = 8, .sigmask_sz = 4};
    answer = syscall(SYS_io_uring_enter, ring.fd, 0, 1, flags, &wrong, sizeof wrong);
    check("a mask of a wrong size", answer == -1 && errno == EINVAL, "%ld, errno %d", answer, errno);
    wrong.sigmask_sz = MASK_SIZE;
    answer = syscall(SYS_io_uring_enter, ring.fd, 0, 1, flags, &wrong, sizeof wrong);
    check("a mask that is nowhere", answer == -1 && errno == EFAULT, "%ld, errno %d", answer, errno);
    answer = syscall(SYS_io_uring_enter, ring.fd, 0, 1, flags, (void *)8, 8L);
    check("an argument of a wrong size", answer == -1 && errno == EINVAL, "%ld, errno %d", answer, errno);
    close(ring.fd);
}

static void *waits_beside(void *unused)
{
    waits_with_arguments();
    return unused;
}

int main(void)
{
    struct ring first;
    unsigned single = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    unknown = ring_open(&first, single) != 0;
    if (unknown) {
        check("no rings here", 1, "errno %d", errno);
        return verdict();
    }
    /* Flags that do not go together, before and after there are threads. */
    struct ring none;
    check("refused", ring_open(&none, IORING_SETUP_DEFER_TASKRUN) == -1 && errno == EINVAL, "errno %d", errno);
    int ends[2];
    char byte = 0;
    MUST(pipe(ends));
    ring_put(&first, IORING_OP_READ, ends[0], &byte, 1, 9);
    check("submitted alone", ring_enter(&first, 1, 0) == 1, "errno %d", errno);

    unsigned flags[] = {0, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, IORING_SETUP_SINGLE_ISSUER, single,
                        single | IORING_SETUP_TASKRUN_FLAG};
    pthread_t threads[5];
    for (int i = 0; i < 5; i++)
        threads[i] = start(transfers, (void *)(long)flags[i]);
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    check("transfers", atomic_load(&bad) == 0, "%d wrong", atomic_load(&bad));
    waits_with_arguments();
    join(start(waits_beside, NULL));
    in_flight();
    check("in flight", atomic_load(&bad) == 0, "%d wrong", atomic_load(&bad));
    check("refused again", ring_open(&none, IORING_SETUP_TASKRUN_FLAG) == -1 && errno == EINVAL, "errno %d", errno);

    unsigned long tag = 0;
    MUST(write(ends[1], "z", 1) != 1);
    int result = ring_take(&first, &tag);
    check("the first one", result == 1 && tag == 9 && byte == 'z', "%d, %lu", result, tag);
    return verdict();
}
