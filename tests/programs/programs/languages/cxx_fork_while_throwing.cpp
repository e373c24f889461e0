// Children of a process whose other threads throw meanwhile: a child can throw, too.
#include <atomic>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include "case.h"

enum { CHILDREN = 4000, THREADS = 3, CAUGHT = 7 };

static std::atomic<bool> over;

__attribute__((noinline)) static int thrown(int depth)
{
    if (depth == 0)
        throw std::runtime_error("thrown");
    return thrown(depth - 1) + 1;
}

static bool catches()
{
    try {
        return thrown(10) < 0;
    } catch (const std::runtime_error &) {
        return true;
    }
}

static void *throws(void *unused)
{
    while (!over)
        catches();
    return unused;
}

int main()
{
    pthread_t threads[THREADS];
    int ended = 0;
    for (auto &thread : threads)
        thread = start(throws, NULL);
    for (; ended < CHILDREN; ended++) {
        int status;
        pid_t child = fork();
        MUST(child < 0);
        if (child == 0) {
            // What hangs ends by this.
            alarm(20);
            _exit(catches() ? CAUGHT : 1);
        }
        MUST(waitpid(child, &status, 0) != child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != CAUGHT)
            break;
    }
    over = true;
    for (auto &thread : threads)
        join(thread);
    check("cxx_fork_while_throwing", ended == CHILDREN, "child %d", ended);
    return verdict();
}
