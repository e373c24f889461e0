// An exception, the end of a thread or a cancellation leaves a frame with a fork: a destructor joins it.
#include <atomic>
#include <upcall.hpp>

#include "check.h"

static std::atomic<int> calls;

class forked {
public:
    explicit forked(void *(*function)(void *), void *argument) { OK(upcall_fork(&fork, function, argument)); }
    ~forked() { OK(upcall_fork_join(&fork, nullptr)); }
    forked(const forked &) = delete;
    forked &operator=(const forked &) = delete;

private:
    upcall_fork_t fork;
};

struct way {
    const char *how;
    bool taken;
    upcall::semaphore begun{0}, waits{0};
    pthread_t creator = pthread_self();
};

static void *called(void *argument)
{
    auto *way = static_cast<struct way *>(argument);
    way->begun.release();
    for (int i = 0; way->taken && i < 50; i++)
        upcall_thread_yield();
    calls++;
    return nullptr;
}

static void leaves(way &way)
{
    forked first(called, &way), second(called, &way);
    for (int i = 0; way.taken && i < 2; i++)
        way.begun.acquire();
    if (strcmp(way.how, "throws") == 0)
        throw 7;
    if (strcmp(way.how, "exits") == 0)
        pthread_exit(nullptr);
    way.waits.release();
    waits_for_ever(nullptr);
}

static void *creates(void *argument)
{
    auto *way = static_cast<struct way *>(argument);
    way->creator = pthread_self();
    if (strcmp(way->how, "throws") != 0)
        leaves(*way);
    try {
        leaves(*way);
    } catch (int thrown) {
        CHECK(thrown == 7);
    }
    return nullptr;
}

int main()
{
    start_as_told();
    int expected = 0;
    for (const char *how : {"throws", "exits", "is cancelled"}) {
        for (bool taken : {false, true}) {
            way way{how, taken};
            upcall_thread_t thread;
            OK(upcall_thread_create(&thread, nullptr, creates, &way));
            if (strcmp(how, "is cancelled") == 0) {
                way.waits.acquire();
                OK(pthread_cancel(way.creator));
            }
            OK(upcall_thread_join(thread, nullptr));
            CHECK(calls == (expected += 2));
        }
    }
    puts("ok");
}
