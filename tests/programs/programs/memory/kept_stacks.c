/* Stacks of threads that have ended are kept, and that shows little: memory that a program gives back reads
 * as zeros when it has it again, few stacks keep their pages, more stacks than are kept are given back, and
 * a limit of addresses above what is mapped leaves its room. */
#include "case.h"
#include <sys/mman.h>
#include <sys/resource.h>

#define PAGE 4096L
#define MB (1L << 20)

/* The word of /proc/self/statm in this place: 0, addresses; 1, resident memory. In bytes. */
static long used(int place)
{
    long pages[2];
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &pages[0], &pages[1]) != 2) {
        printf("FAIL set-up: /proc/self/statm\n");
        exit(1);
    }
    fclose(file);
    return pages[place] * PAGE;
}

static int is_zero(const unsigned char *bytes, long length)
{
    for (long i = 0; i < length; i++)
        if (bytes[i] != 0)
            return 0;
    return 1;
}

/* Where a thread's frames are now, in whole pages. */
static unsigned char *page_here(void)
{
    return (unsigned char *)((unsigned long)__builtin_frame_address(0) & ~(PAGE - 1));
}

static pthread_barrier_t all;
/* How much of its stack each thread writes. */
static long written;

static void *writes(void *unused)
{
    unsigned char *top = page_here() - PAGE;
    for (long offset = 0; offset < written; offset += PAGE)
        top[-offset] = 1;
    pthread_barrier_wait(&all);
    return unused;
}

/* So many threads with such stacks, all there at once, that write so much of it. On return all have ended. */
static void run_threads(int count, long stack, long how_much)
{
    pthread_attr_t attributes;
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    written = how_much;
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstacksize(&attributes, (size_t)stack));
    MUST(pthread_barrier_init(&all, NULL, (unsigned)count));
    for (int i = 0; i < count; i++)
        MUST(pthread_create(&threads[i], &attributes, writes, NULL));
    for (int i = 0; i < count; i++)
        join(threads[i]);
    MUST(pthread_barrier_destroy(&all));
    MUST(pthread_attr_destroy(&attributes));
    free(threads);
}

/* Frees pages of its own stack, as libc does for a thread that ends: just below the stack pointer, with all
 * signals blocked. */
static void *frees_below(void *unused)
{
    long size = 16 * PAGE;
    unsigned char *freed = page_here() - 4 * PAGE - size;
    sigset_t every;
    memset(freed, 1, (size_t)size);
    sigfillset(&every);
    MUST(pthread_sigmask(SIG_SETMASK, &every, NULL));
    MUST(madvise(freed, (size_t)size, MADV_DONTNEED));
    check("kept_stacks_own_advice", is_zero(freed, size), "pages are there still");
    return unused;
}

/* A stack of the program's own, which it unmaps and maps again. */
static void maps_again(void)
{
    long size = MB;
    pthread_attr_t attributes;
    pthread_t thread;
    unsigned char *stack = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    written = size / 2;
    MUST(stack == MAP_FAILED);
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstack(&attributes, stack, (size_t)size));
    MUST(pthread_barrier_init(&all, NULL, 1));
    MUST(pthread_create(&thread, &attributes, writes, NULL));
    join(thread);
    check("kept_stacks_program_s_own", !is_zero(stack, size), "nobody wrote");
    MUST(munmap(stack, (size_t)size));
    unsigned char *again = mmap(stack, (size_t)size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    check("kept_stacks_mapped_again", again == stack, "%p is not %p", (void *)again, (void *)stack);
    check("kept_stacks_zeros", again == stack && is_zero(again, size), "bytes are there still");
    MUST(munmap(stack, (size_t)size));
    MUST(pthread_barrier_destroy(&all));
    MUST(pthread_attr_destroy(&attributes));
}

static void *nothing(void *unused) { return unused; }

int main(void)
{
    maps_again();
    join(start(frees_below, NULL));

    /* A few of a hundred stacks may keep their pages. */
    long resident = used(1);
    run_threads(100, 4 * MB, 2 * MB);
    resident = used(1) - resident;
    check("kept_stacks_pages", resident < 60 * MB, "%ld MB are resident", resident / MB);

    /* 19 GB, of which less than 12 may be kept. */
    run_threads(300, 64 * MB, PAGE);
    check("kept_stacks_given_back", used(0) < 12 * 1024 * MB, "%ld MB are mapped", used(0) / MB);

    /* What is kept is mapped, as natively: a limit above it leaves room for what is in between. */
    run_threads(1000, 8 * MB, PAGE);
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_AS, &limit));
    limit.rlim_cur = (rlim_t)(used(0) + 32 * MB);
    MUST(setrlimit(RLIMIT_AS, &limit));
    void *fits =
        mmap(NULL, 16 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("kept_stacks_limit_leaves_room", fits != MAP_FAILED, "errno %d", errno);
    void *large =
        mmap(NULL, 64 * MB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check("kept_stacks_limit_holds", large == MAP_FAILED && errno == ENOMEM, "got %p", large);
    /* A kept stack needs no room. */
    pthread_attr_t attributes;
    pthread_t thread;
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstacksize(&attributes, 8 * MB));
    int made = pthread_create(&thread, &attributes, nothing, NULL);
    check("kept_stacks_used_under_limit", made == 0, "pthread_create gave %d", made);
    if (made == 0)
        join(thread);
    MUST(munmap(fits, 16 * MB));
    return verdict();
}
