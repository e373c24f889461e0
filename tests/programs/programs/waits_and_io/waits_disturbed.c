/* Calls that the kernel ends or begins again when any signal comes, while the process makes calls that concern all of
 * its threads: sleeps on unusual clocks, memory for a file, and completions of io_uring(7). */
#include "case.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static atomic_int over, go;
static int ends[2];

static void *disturb(void *unused)
{
    while (!atomic_load(&over)) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        struct timespec pause = {0, 300000};
        nanosleep(&pause, NULL);
    }
    return unused;
}

static void *compute(void *unused)
{
    while (!atomic_load(&over)) {
    }
    return unused;
}

static void handle(int signal) { (void)signal; }

static void *sleeper(void *unused)
{
    struct timespec time = {1000, 0}, left = {0, 0};
    int answer = clock_nanosleep(CLOCK_BOOTTIME, 0, &time, &left);
    check("sleep_left", answer == EINTR && left.tv_sec >= 900 && left.tv_sec < 1000, "%d, %ld s", answer,
          (long)left.tv_sec);
    atomic_store(&go, 2);
    return unused;
}

static void *feeder(void *unused)
{
    for (int i = 1; i <= 50; i++) {
        while (atomic_load(&go) != i) {
            sched_yield();
        }
        if (i % 2) {
            settle();
        }
        MUST(write(ends[1], "x", 1) != 1);
    }
    return unused;
}

/* Submits and waits by one call: when that returns, the completion is there. */
static void completions(void)
{
    struct io_uring_params given = {0};
    int ring = (int)syscall(SYS_io_uring_setup, 4, &given);
    if (ring < 0) {
        check("completions", 1, "-");
        return;
    }
    char *sq = mmap(NULL, given.sq_off.array + 4 * given.sq_entries, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    char *cq = mmap(NULL, given.cq_off.cqes + given.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE,
                    MAP_SHARED, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *entry = mmap(NULL, given.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQES);
    atomic_uint *sq_tail = (void *)(sq + given.sq_off.tail), *cq_head = (void *)(cq + given.cq_off.head),
                *cq_tail = (void *)(cq + given.cq_off.tail);
    int early = 0, wrong = 0;
    char byte;
    MUST(pipe(ends));
    atomic_store(&go, 0);
    pthread_t thread = start(feeder, NULL);
    for (int i = 1; i <= 50; i++) {
        memset(entry, 0, sizeof *entry);
        *entry = (struct io_uring_sqe){.opcode = IORING_OP_READ, .fd = ends[0], .addr = (unsigned long)&byte, .len = 1, .off = -1UL};
        *(unsigned *)(sq + given.sq_off.array + 4 * (atomic_load(sq_tail) % given.sq_entries)) = 0;
        atomic_fetch_add(sq_tail, 1);
        atomic_store(&go, i);
        wrong += syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1;
        int came = atomic_load(cq_tail) != atomic_load(cq_head);
        early += !came;
        while (atomic_load(cq_tail) == atomic_load(cq_head)) {
            sched_yield();
        }
        atomic_fetch_add(cq_head, 1);
    }
    join(thread);
    check("completions", early == 0 && wrong == 0, "%d early, %d wrong", early, wrong);
}

int main(void)
{
    struct sigaction action = {.sa_handler = handle};
    MUST(sigaction(SIGUSR1, &action, NULL));
    pthread_t computes = start(compute, NULL), disturbs = start(disturb, NULL);
    struct timespec time = {0, 50 * 1000 * 1000};
    struct {
        const char *name;
        clockid_t clock;
    } clocks[] = {{"monotonic", CLOCK_MONOTONIC}, {"boottime", CLOCK_BOOTTIME}, {"tai", CLOCK_TAI}, {"cputime", CLOCK_PROCESS_CPUTIME_ID}};
    for (int i = 0; i < 4; i++) {
        long long began = now(clocks[i].clock);
        int answer = clock_nanosleep(clocks[i].clock, 0, &time, NULL);
        long long took = now(clocks[i].clock) - began;
        check(clocks[i].name, answer == 0 && took >= 50 * 1000 * 1000, "%d after %lld ns", answer, took);
    }
    pthread_t sleeps = start(sleeper, NULL);
    while (atomic_load(&go) != 2) {
        settle();
        pthread_kill(sleeps, SIGUSR1);
    }
    join(sleeps);
    check("no_such_clock", clock_nanosleep(77, 0, &time, NULL) == EINVAL && clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &time, NULL) == EINVAL,
          "served");
    time.tv_nsec = -1;
    check("no_such_time", clock_nanosleep(CLOCK_BOOTTIME, 0, &time, NULL) == EINVAL, "served");
    int file = memfd_create("room", 0), failed = 0;
    for (int i = 0; i < 3; i++) {
        failed += fallocate(file, 0, 0, 64 << 20) != 0;
        failed += ftruncate(file, 0) != 0;
    }
    check("fallocate", failed == 0, "errno %d", errno);
    completions();
    atomic_store(&over, 1);
    join(computes);
    join(disturbs);
    return verdict();
}
