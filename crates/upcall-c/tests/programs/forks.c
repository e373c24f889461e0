/* Fork and join: calls that are made where they are joined, calls that are threads, and what is refused. */
#include <stdatomic.h>
#include <sys/wait.h>

#include "check.h"

static void *fib(void *argument)
{
    size_t n = (size_t)argument;
    if (n < 2)
        return argument;
    upcall_fork_t fork;
    void *other;
    OK(upcall_fork(&fork, fib, (void *)(n - 2)));
    size_t one = (size_t)fib((void *)(n - 1));
    OK(upcall_fork_join(&fork, &other));
    return (void *)(one + (size_t)other);
}

static void *doubles(void *argument)
{
    return (char *)argument + (size_t)argument;
}

/* In each order in which three can be joined, with others above and below them, and more than a list has room for. */
static void in_any_order(void)
{
    enum { MOST = 300, ORDERS = 6 };
    static const int orders[ORDERS][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static upcall_fork_t many[MOST];
    for (int below = 0; below < 2; below++) {
        upcall_fork_t first, three[3];
        if (below)
            OK(upcall_fork(&first, doubles, (void *)7));
        for (int order = 0; order < ORDERS; order++) {
            for (size_t i = 0; i < 3; i++)
                OK(upcall_fork(&three[i], doubles, (void *)i));
            for (int i = 0; i < 3; i++) {
                void *result;
                size_t which = (size_t)orders[order][i];
                OK(upcall_fork_join(&three[which], &result));
                CHECK((size_t)result == 2 * which);
                CHECK((size_t)fib((void *)5) == 5);
            }
        }
        if (below)
            OK(upcall_fork_join(&first, NULL));
    }
    for (size_t stride = 1; stride < MOST; stride += 7) {
        for (size_t i = 0; i < MOST; i++)
            OK(upcall_fork(&many[i], doubles, (void *)i));
        for (size_t i = 0; i < stride; i++) {
            for (size_t at = i; at < MOST; at += stride) {
                void *result;
                OK(upcall_fork_join(&many[at], &result));
                CHECK((size_t)result == 2 * at);
            }
        }
    }
}

static upcall_semaphore_t meets;

static void *posts(void *argument)
{
    OK(upcall_semaphore_post(&meets));
    return argument;
}

/* What is forked runs where its thread waits for it. */
static void waits_in_between(void)
{
    OK(upcall_semaphore_init(&meets, 0));
    for (int i = 0; i < 200; i++) {
        upcall_fork_t forks[2];
        void *result;
        OK(upcall_fork(&forks[0], posts, forks));
        OK(upcall_fork(&forks[1], posts, NULL));
        OK(upcall_semaphore_wait(&meets));
        OK(upcall_semaphore_wait(&meets));
        OK(upcall_fork_join(&forks[0], &result));
        CHECK(result == forks);
        OK(upcall_fork_join(&forks[1], NULL));
    }
}

static void *exits(void *argument)
{
    OK(upcall_semaphore_post(&meets));
    pthread_exit(argument);
}

/* In a thread of its own, which is certain where the joining thread waits for it first. */
static void ends_early(void)
{
    upcall_fork_t fork;
    void *result = NULL;
    OK(upcall_fork(&fork, exits, NULL));
    OK(upcall_semaphore_wait(&meets));
    OK(upcall_fork_join(&fork, &result));
    CHECK(result == PTHREAD_CANCELED);
}

static pthread_t runner;
static upcall_semaphore_t goes;

static void *begins(void *argument)
{
    runner = pthread_self();
    OK(upcall_semaphore_post(&meets));
    if (argument)
        OK(upcall_semaphore_wait(&goes));
    return argument;
}

/* In the child of a fork: what nobody has taken is joined as ever, and what another thread has taken has no thread there. */
static void in_a_child(void)
{
    enum { JOINED = 9, NOT_THERE = 10 };
    /* Otherwise it is a thread, of which the child knows nothing. */
    if (upcall_served_by() != UPCALL_OWN)
        return;
    OK(upcall_semaphore_init(&goes, 0));
    for (int taken = 0; taken < 2; taken++) {
        upcall_fork_t fork_of_call;
        void *argument = taken ? &fork_of_call : NULL, *result = &fork_of_call;
        OK(upcall_fork(&fork_of_call, begins, argument));
        if (taken)
            OK(upcall_semaphore_wait(&meets));
        pid_t child = fork();
        if (child == 0) {
            /* What hangs ends by this. */
            alarm(20);
            int answer = upcall_fork_join(&fork_of_call, &result);
            CHECK(taken ? answer == ESRCH : answer == 0 || answer == ESRCH);
            CHECK(answer || result == NULL);
            ANSWERS(EINVAL, upcall_fork_join(&fork_of_call, NULL));
            CHECK((size_t)fib((void *)8) == 21);
            _exit(answer ? NOT_THERE : JOINED);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        if (taken)
            OK(upcall_semaphore_post(&goes));
        OK(upcall_fork_join(&fork_of_call, &result));
        CHECK(result == argument);
        /* What it has itself called, nobody had taken. */
        int is_own = pthread_equal(runner, pthread_self());
        CHECK(WEXITSTATUS(status) == JOINED || (WEXITSTATUS(status) == NOT_THERE && !is_own));
        if (!taken)
            OK(upcall_semaphore_wait(&meets));
    }
}

static void *joins_of_other(void *fork)
{
    return (void *)(size_t)upcall_fork_join(fork, NULL);
}

static void refused(void)
{
    upcall_fork_t fork;
    ANSWERS(EINVAL, upcall_fork(NULL, doubles, NULL));
    ANSWERS(EINVAL, upcall_fork(&fork, NULL, NULL));
    ANSWERS(EINVAL, upcall_fork_join(NULL, NULL));
    /* Otherwise it is a thread, which any thread may join. */
    if (upcall_served_by() == UPCALL_OWN) {
        upcall_thread_t other;
        void *result;
        OK(upcall_fork(&fork, doubles, NULL));
        OK(upcall_thread_create(&other, NULL, joins_of_other, &fork));
        OK(upcall_thread_join(other, &result));
        CHECK((size_t)result == EPERM);
        OK(upcall_fork_join(&fork, NULL));
    }
    OK(upcall_fork(&fork, doubles, NULL));
    OK(upcall_fork_join(&fork, NULL));
    ANSWERS(EINVAL, upcall_fork_join(&fork, NULL));
}

static void *all(void *unused)
{
    CHECK((size_t)fib((void *)12) == 144);
    in_any_order();
    waits_in_between();
    in_a_child();
    ends_early();
    refused();
    return unused;
}

int main(void)
{
    start_as_told();
    all(NULL);
    upcall_thread_t thread;
    OK(upcall_thread_create(&thread, NULL, all, NULL));
    OK(upcall_thread_join(thread, NULL));
    puts("ok");
}
