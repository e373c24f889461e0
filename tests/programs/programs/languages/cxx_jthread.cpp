// std::jthread joins by itself, stop_token and stop_callback, a condition variable woken by a stop.
#include "case.h"
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

int main()
{
    std::atomic<int> joined{0}, called{0}, woken{0};
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 20; i++)
            threads.emplace_back([&](std::stop_token stop) {
                std::stop_callback callback(stop, [&] { called++; });
                while (!stop.stop_requested())
                    std::this_thread::yield();
                joined++;
            });
    }
    check("jthread", joined == 20 && called == 20, "%d joined, %d callbacks", joined.load(),
          called.load());

    std::mutex mutex;
    std::condition_variable_any condition;
    std::jthread waiter([&](std::stop_token stop) {
        std::unique_lock lock(mutex);
        bool met = condition.wait(lock, stop, [] { return false; });
        woken = met ? -1 : 1;
    });
    settle();
    waiter.request_stop();
    waiter.join();
    check("stop_token_wait", woken == 1, "%d", woken.load());
    return verdict();
}
