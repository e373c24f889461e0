// std::latch, std::barrier with a completion function, counting_semaphore with timeouts.
#include "case.h"
#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <semaphore>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main()
{
    constexpr int threads = 10, phases = 100;
    std::latch begin(threads), end(threads);
    std::atomic<int> arrived{0}, early{0}, completions{0};
    std::barrier barrier(threads, [&]() noexcept {
        if (arrived.load() % threads != 0)
            early++;
        completions++;
    });
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; i++)
        all.emplace_back([&] {
            begin.arrive_and_wait();
            for (int phase = 0; phase < phases; phase++) {
                arrived++;
                barrier.arrive_and_wait();
                if (completions.load() < phase + 1)
                    early++;
            }
            end.count_down();
        });
    end.wait();
    all.clear();
    check("latch_barrier", early == 0 && completions == phases && arrived == threads * phases,
          "%d early, %d completions, %d arrivals", early.load(), completions.load(),
          arrived.load());

    std::counting_semaphore<5> permits(5);
    std::atomic<int> inside{0}, most{0}, over{0};
    // With a time limit, and again: natively, too, libstdc++ 12 loses wake-ups of acquire() (its bug 104928).
    for (int i = 0; i < 20; i++)
        all.emplace_back([&] {
            for (int k = 0; k < 50; k++) {
                while (!permits.try_acquire_for(20ms))
                    ;
                int now_inside = ++inside;
                if (now_inside > 5)
                    over++;
                if (now_inside > most)
                    most = now_inside;
                std::this_thread::yield();
                inside--;
                permits.release();
            }
        });
    all.clear();
    check("counting_semaphore", over == 0 && most >= 1, "%d times over, most %d", over.load(),
          most.load());

    std::binary_semaphore never(0);
    auto before = std::chrono::steady_clock::now();
    bool got = never.try_acquire_for(20ms);
    auto waited = std::chrono::steady_clock::now() - before;
    check("semaphore_try_for", !got && waited >= 20ms, "got %d", got);
    return verdict();
}
