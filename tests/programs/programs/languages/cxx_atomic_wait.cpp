// atomic::wait and notify, on a word that a futex fits and on a size that it does not; atomic_flag.
#include "case.h"
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

template <typename Word> static void ping_pong(const char *name)
{
    std::atomic<Word> word{0};
    std::thread other([&] {
        for (int i = 0; i < 2000; i++) {
            word.wait(0);
            word.store(0);
            word.notify_one();
        }
    });
    for (int i = 0; i < 2000; i++) {
        word.store(1);
        word.notify_one();
        word.wait(1);
    }
    other.join();
    check(name, word.load() == 0, "ended with %d", static_cast<int>(word.load()));
}

int main()
{
    ping_pong<int>("atomic_wait_int");
    ping_pong<std::uint8_t>("atomic_wait_byte");
    ping_pong<std::uint64_t>("atomic_wait_long");

    std::atomic_flag gate = ATOMIC_FLAG_INIT;
    std::atomic<int> passed{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 50; i++)
        threads.emplace_back([&] {
            gate.wait(false);
            passed++;
        });
    settle();
    gate.test_and_set();
    gate.notify_all();
    for (auto &thread : threads)
        thread.join();
    check("atomic_notify_all", passed == 50, "%d of 50", passed.load());
    return verdict();
}
