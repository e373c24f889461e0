// pthread_cancel and pthread_exit unwind C++ frames: destructors run, catch (...) sees it and must
// pass it on.
#include "case.h"
#include <atomic>
#include <cxxabi.h>

static std::atomic<int> destroyed{0}, caught{0};

struct Guard {
    ~Guard() { destroyed++; }
};

static void *sleeps(void *)
{
    Guard outer;
    try {
        Guard inner;
        for (;;)
            sleep(1000);
    } catch (abi::__forced_unwind &) {
        caught++;
        throw;
    }
    return nullptr;
}

static void *reads(void *descriptor)
{
    Guard guard;
    char byte;
    if (read(static_cast<int>(reinterpret_cast<long>(descriptor)), &byte, 1) == 1)
        destroyed = -100;
    return nullptr;
}

static void *exits(void *)
{
    Guard guard;
    pthread_exit(reinterpret_cast<void *>(12));
}

int main()
{
    pthread_t thread = start(sleeps, nullptr);
    settle();
    pthread_cancel(thread);
    void *result = join(thread);
    // Cancelled before the frames were there, nothing would have been destroyed: the guards are
    // built before the first cancellation point.
    check("cancel_unwind", result == PTHREAD_CANCELED && destroyed == 2 && caught == 1,
          "%p, %d destroyed, %d caught", result, destroyed.load(), caught.load());

    int ends[2];
    MUST(pipe(ends));
    destroyed = 0;
    thread = start(reads, reinterpret_cast<void *>(static_cast<long>(ends[0])));
    settle();
    pthread_cancel(thread);
    result = join(thread);
    check("cancel_unwind_read", result == PTHREAD_CANCELED && destroyed == 1, "%p, %d destroyed",
          result, destroyed.load());

    destroyed = 0;
    result = join(start(exits, nullptr));
    check("exit_unwind", result == reinterpret_cast<void *>(12) && destroyed == 1,
          "%p, %d destroyed", result, destroyed.load());
    return verdict();
}
