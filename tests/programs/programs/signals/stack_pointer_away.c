/* Threads that compute for several time slices while their stack pointer is in a buffer of the heap, as in kernels of oneDNN:
 * what is around it stays as it is, since nobody sends a signal. Then on stacks of their own making, which have just room
 * for what they call there. Then in the heap again while a timer has signals sent, which the waiting first thread gets, and
 * another process sends one that nobody handles: only where a handler of a thread's own has run may it have changed. */
#include "case.h"
#include "stack_pointer.h"
#include <dirent.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>

enum { THREADS = 6, ROUNDS = 8, SIZE = 1 << 16, SMALL = 1 << 12 };

#define TURNS 20000000L

static int changed(const unsigned char *bytes, int seed)
{
    int count = 0;
    for (int i = 0; i < SIZE; i++) {
        count += bytes[i] != (unsigned char)(i * 7 + seed);
    }
    return count;
}

static volatile sig_atomic_t by_first;
static __thread volatile sig_atomic_t is_first, has_handled;

static void on_signal(int signal)
{
    (void)signal;
    has_handled = 1;
    by_first += is_first;
}

static void *in_the_heap(void *number)
{
    long bad = 0, seed = (long)number;
    unsigned char *bytes = malloc(SIZE);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SIZE; i++) {
            bytes[i] = (unsigned char)(i * 7 + seed);
        }
        has_handled = 0;
        compute_at((char *)bytes + SIZE / 2, TURNS);
        bad += has_handled ? 0 : changed(bytes, (int)seed);
    }
    free(bytes);
    return (void *)bad;
}

static __thread ucontext_t back, there;

static void turns(void)
{
    for (volatile long left = TURNS; left > 0; left--) {
    }
}

/* Below the small stack is other memory. */
static void *on_small_stacks(void *number)
{
    long bad = 0, seed = (long)number;
    unsigned char *bytes = malloc(SIZE + SMALL);
    for (int i = 0; i < SIZE; i++) {
        bytes[i] = (unsigned char)(i * 7 + seed);
    }
    MUST(getcontext(&there));
    there.uc_stack.ss_sp = bytes + SIZE;
    there.uc_stack.ss_size = SMALL;
    there.uc_link = &back;
    makecontext(&there, turns, 0);
    MUST(swapcontext(&back, &there));
    bad += changed(bytes, (int)seed);
    free(bytes);
    return (void *)bad;
}

/* Milliseconds between signals; 0: none. */
static void send_every(int milliseconds)
{
    struct itimerval every = {{0, 1000 * milliseconds}, {0, 1000 * milliseconds}};
    MUST(setitimer(ITIMER_REAL, &every, NULL));
}

/* Another process, which sends a signal without a handler to all kernel threads of this one until it is killed. */
static pid_t start_sender(void)
{
    pid_t parent = getpid(), child = fork();
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    while (child == 0) {
        DIR *tasks = opendir(path);
        if (tasks == NULL)
            _exit(0);
        for (struct dirent *task; (task = readdir(tasks)) != NULL;)
            if (atoi(task->d_name) != 0)
                syscall(SYS_tgkill, parent, atoi(task->d_name), SIGURG);
        closedir(tasks);
        usleep(1000);
    }
    return child;
}

static void try(const char *name, void *(*work)(void *), int with_first)
{
    pthread_t threads[THREADS];
    long bad = 0;
    for (long i = 0; i < THREADS; i++) {
        threads[i] = start(work, (void *)i);
    }
    pid_t sender = with_first ? 0 : start_sender();
    if (with_first) {
        bad += (long)work((void *)(long)THREADS);
    } else {
        /* Who makes a thread or a process blocks signals meanwhile. */
        send_every(1);
    }
    for (int i = 0; i < THREADS; i++) {
        void *its;
        MUST(pthread_join(threads[i], &its));
        bad += (long)its;
    }
    send_every(0);
    if (sender != 0) {
        MUST(kill(sender, SIGKILL) || waitpid(sender, NULL, 0) != sender);
    }
    check(name, bad == 0, "%ld bytes changed", bad);
}

int main(void)
{
    is_first = 1;
    try("in_the_heap", in_the_heap, 1);
    try("on_small_stacks", on_small_stacks, 1);
    struct sigaction action = {.sa_handler = on_signal};
    MUST(sigaction(SIGALRM, &action, NULL));
    try("beside_a_timer", in_the_heap, 0);
    check("by_the_first", by_first > 0, "none");
    return verdict();
}
