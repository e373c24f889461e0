// shared_mutex, shared_timed_mutex, recursive_timed_mutex, scoped_lock over several mutexes, and
// condition_variable timeouts.
#include "case.h"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main()
{
    std::shared_mutex shared;
    std::atomic<int> readers{0}, writers{0}, clashes{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 12; i++)
        threads.emplace_back([&, i] {
            for (int turn = 0; turn < 200; turn++)
                if ((turn + i) % 6 == 0) {
                    std::unique_lock lock(shared);
                    if (++writers != 1 || readers != 0)
                        clashes++;
                    std::this_thread::yield();
                    writers--;
                } else {
                    std::shared_lock lock(shared);
                    readers++;
                    if (writers != 0)
                        clashes++;
                    std::this_thread::yield();
                    readers--;
                }
        });
    threads.clear();
    check("shared_mutex", clashes == 0, "%d clashes", clashes.load());

    std::mutex forks[5];
    long eaten = 0;
    std::mutex counting;
    for (int i = 0; i < 5; i++)
        threads.emplace_back([&, i] {
            for (int turn = 0; turn < 300; turn++) {
                std::scoped_lock both(forks[i], forks[(i + 1) % 5]);
                if (turn % 10 == 0)
                    std::this_thread::yield();
                std::lock_guard lock(counting);
                eaten++;
            }
        });
    threads.clear();
    check("scoped_lock", eaten == 1500, "%ld", eaten);

    std::recursive_timed_mutex recursive;
    std::shared_timed_mutex timed;
    recursive.lock();
    recursive.lock();
    timed.lock();
    bool first = true, second = true, early = false;
    std::thread([&] {
        auto before = std::chrono::steady_clock::now();
        first = recursive.try_lock_for(20ms);
        second = timed.try_lock_shared_for(20ms);
        early = std::chrono::steady_clock::now() - before < 40ms;
    }).join();
    check("timed_mutexes", !first && !second && !early, "%d, %d, early %d", first, second, early);

    std::mutex mutex;
    std::condition_variable never;
    std::unique_lock lock(mutex);
    auto before = std::chrono::steady_clock::now();
    bool met = never.wait_for(lock, 20ms, [] { return false; });
    auto waited = std::chrono::steady_clock::now() - before;
    check("wait_for", !met && waited >= 20ms, "met %d", met);
    return verdict();
}
