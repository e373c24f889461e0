/* Every kind of wait, and whatever needs memory, descriptors, threads or room for signals, in amounts of
 * work, while a thread lowers the process's limits and raises them again (SOAK_SEED decides how): what is
 * refused is asked for again, and everything else must be as ever. As root it becomes somebody whose
 * number of processes is limited. */
#include "queued_signals.h"
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { RING = 6, TURNS = 600, SHORT = 200, MAPS = 200, FILES = 300, SLEEPS = 100, SENT = 300 };
#include "soak_waits.h"

/* What the kernel answers while a limit is lowered; once more, then. */
static int refused(int error)
{
    if (error != EAGAIN && error != ENOMEM && error != EMFILE)
        return 0;
    sched_yield();
    return 1;
}

/* Asks again as long as `call` fails for a limit. */
#define AT_LAST(call)                                                                              \
    ({                                                                                             \
        long at_last;                                                                              \
        while ((at_last = (long)(call)) == -1 && refused(errno)) {                                 \
        }                                                                                          \
        at_last;                                                                                   \
    })

static pthread_t begin(void *(*body)(void *), void *argument, size_t stack)
{
    pthread_t thread;
    pthread_attr_t attributes;
    int answer;
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstacksize(&attributes, stack));
    while (refused(answer = pthread_create(&thread, &attributes, body, argument))) {
    }
    MUST(answer);
    pthread_attr_destroy(&attributes);
    return thread;
}

static void *echoes(void *end)
{
    int epoll = (int)AT_LAST(epoll_create1(0)), fd = (int)(long)end;
    struct epoll_event event = {.events = EPOLLIN};
    MUST(AT_LAST(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)));
    for (int i = 0; i < TURNS; i++) {
        MUST(UNSTOPPED(epoll_wait(epoll, &event, 1, -1)) != 1);
        long word;
        MUST(get(fd, &word));
        MUST(put(fd, word * 2));
    }
    close(epoll);
    return NULL;
}

static void *asks(void *end)
{
    int fd = (int)(long)end;
    for (long i = 0; i < TURNS; i++) {
        MUST(put(fd, i));
        struct pollfd one = {.fd = fd, .events = POLLIN};
        int ready;
        /* So many descriptors are not allowed: EINVAL. */
        while ((ready = poll(&one, 1, 60 * 1000)) == -1 && errno == EINVAL)
            sched_yield();
        MUST(ready != 1);
        long word;
        MUST(get(fd, &word));
        MUST(word != 2 * i);
    }
    return NULL;
}

static void *sleeps(void *out)
{
    for (int i = 0; i < SLEEPS; i++) {
        struct timespec left = {0, 500 * 1000};
        MUST(nanosleep(&left, NULL));
        ++*(long *)out;
    }
    return NULL;
}

static void *opens(void *out)
{
    for (int i = 0; i < FILES; i++) {
        int fd = (int)AT_LAST(open("/dev/zero", O_RDONLY));
        char byte = 1;
        MUST(fd < 0);
        *(long *)out += read(fd, &byte, 1) == 1 && byte == 0;
        close(fd);
    }
    return NULL;
}

static void *maps(void *out)
{
    for (int i = 0; i < MAPS; i++) {
        long map = AT_LAST(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        MUST(map == -1);
        for (int at = 0; at < 1 << 20; at += 65536)
            ((char *)map)[at] = 1;
        for (int at = 0; at < 1 << 20; at += 65536)
            *(long *)out += ((char *)map)[at];
        munmap((void *)map, 1 << 20);
    }
    return NULL;
}

static void *shortly(void *word)
{
    ++*(long *)word;
    return word;
}

static void *begins_threads(void *out)
{
    /* Of many sizes, or the last one's stack is used again. */
    for (int i = 0; i < SHORT; i++)
        join(begin(shortly, out, (64 + 4 * (i % 37)) << 10));
    return NULL;
}

/* What could be queued arrives, each once. */
static void *sends(void *unused)
{
    for (int i = 1; i <= SENT; i++) {
        MUST(AT_LAST(sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = i})));
        await_handled(i, 8);
    }
    await_handled(SENT, 0);
    return unused;
}

static atomic_int over;

/* The memory that the process has by now. */
static rlim_t size(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    MUST(!file || fscanf(file, "%ld", &pages) != 1);
    fclose(file);
    return (rlim_t)pages * 4096;
}

static void *lowers(void *lowered)
{
    const char *text = getenv("SOAK_SEED");
    unsigned long random = text ? strtoul(text, NULL, 10) : 1;
    while (!atomic_load(&over)) {
        static const int which[] = {RLIMIT_AS, RLIMIT_NPROC, RLIMIT_SIGPENDING, RLIMIT_NOFILE};
        random = random * 6364136223846793005u + 1442695040888963407u;
        int resource = which[random >> 62];
        struct rlimit before, low;
        MUST(getrlimit(resource, &before));
        low = before;
        low.rlim_cur = resource == RLIMIT_AS ? size() : random >> 58 & 1;
        MUST(setrlimit(resource, &low));
        MUST(nanosleep(&(struct timespec){0, 1000L << (random >> 54 & 15)}, NULL));
        MUST(setrlimit(resource, &before));
        MUST(nanosleep(&(struct timespec){0, 1000L << (random >> 50 & 15)}, NULL));
        ++*(long *)lowered;
    }
    return NULL;
}

/* The stack of the first thread grows no more: that would end the process, where it may not. */
static void grow(void)
{
    char room[512 << 10];
    memset(room, 1, sizeof room);
    __asm__ volatile("" : : "r"(room) : "memory");
}

int main(void)
{
    grow();
    if (geteuid() == 0) {
        MUST(setresgid(54322, 54322, 54322));
        MUST(setresuid(54322, 54322, 54322));
        MUST(prctl(PR_SET_DUMPABLE, 1));
    }
    handle_queued();
    /* Sleeps and waits for events are ended by a handler, also by one that restarts calls. */
    sigset_t queued, before;
    sigemptyset(&queued);
    sigaddset(&queued, SIGRTMIN);
    MUST(pthread_sigmask(SIG_BLOCK, &queued, &before));
    long slept = 0, opened = 0, mapped = 0, begun = 0, lowered = 0;
    int ends[2];
    pthread_t threads[RING + 16];
    int count = 0;
    for (int i = 0; i < RING; i++)
        MUST(AT_LAST(pipe(pipes[i])));
    MUST(AT_LAST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends)));
    for (long i = 0; i < RING; i++)
        threads[count++] = begin(ring, (void *)i, 256 << 10);
    for (long i = 0; i < 4; i++)
        threads[count++] = begin(takes_turns, (void *)i, 256 << 10);
    threads[count++] = begin(echoes, (void *)(long)ends[0], 256 << 10);
    threads[count++] = begin(asks, (void *)(long)ends[1], 256 << 10);
    threads[count++] = begin(sleeps, &slept, 256 << 10);
    threads[count++] = begin(opens, &opened, 256 << 10);
    threads[count++] = begin(maps, &mapped, 256 << 10);
    threads[count++] = begin(begins_threads, &begun, 256 << 10);
    pthread_t limits = begin(lowers, &lowered, 256 << 10);
    MUST(put(pipes[0][1], 0));
    MUST(pthread_sigmask(SIG_SETMASK, &before, NULL));
    sends(NULL);
    for (int i = 0; i < count; i++)
        join(threads[i]);
    atomic_store(&over, 1);
    join(limits);
    check("limits_lowered", lowered > 0, "never");
    check("limits_turns", turn == 4 * TURNS, "%ld", turn);
    check("limits_sleeps", slept == SLEEPS, "%ld", slept);
    check("limits_files", opened == FILES, "%ld", opened);
    check("limits_memory", mapped == MAPS * 16, "%ld", mapped);
    check("limits_threads", begun == SHORT, "%ld", begun);
    check("limits_signals", sum == SENT * (SENT + 1) / 2, "%ld, %ld", (long)sum, (long)handled);
    return verdict();
}
