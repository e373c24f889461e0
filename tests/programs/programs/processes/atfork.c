/* pthread_atfork handlers run in their order, on the forking thread, while other threads run. */
#include "case.h"
#include <stdatomic.h>
#include <sys/wait.h>

static char order[64];
static pthread_t forking;
static int strangers;
static atomic_int stop;

static void note(char what)
{
    size_t length = strlen(order);
    if (length + 1 < sizeof order)
        order[length] = what;
    strangers += !pthread_equal(pthread_self(), forking);
}

static void prepare1(void) { note('a'); }
static void parent1(void) { note('b'); }
static void child1(void) { note('c'); }
static void prepare2(void) { note('A'); }
static void parent2(void) { note('B'); }
static void child2(void) { note('C'); }

static void *noise(void *unused)
{
    while (!atomic_load(&stop))
        sched_yield();
    return unused;
}

static void *forker(void *unused)
{
    (void)unused;
    forking = pthread_self();
    pid_t child = fork();
    if (child == 0)
        _exit(strcmp(order, "AacC") == 0 && strangers == 0 ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return (void *)(long)status;
}

int main(void)
{
    MUST(pthread_atfork(prepare1, parent1, child1));
    MUST(pthread_atfork(prepare2, parent2, child2));
    pthread_t other = start(noise, NULL);
    long status = (long)join(start(forker, NULL));
    check("atfork_parent", strcmp(order, "AabB") == 0 && strangers == 0, "order %s", order);
    check("atfork_child", status == 0, "child status %#lx", status);
    atomic_store(&stop, 1);
    join(other);
    return verdict();
}
