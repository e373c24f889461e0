// Exceptions thrown and caught in threads, in flight across switches, rethrown, and carried across
// std::async and promises. The exception globals are thread-local.
#include "case.h"
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

struct Counted {
    static inline std::atomic<int> alive{0};
    Counted() { alive++; }
    ~Counted() { alive--; }
};

static void deep(int depth, int value)
{
    Counted guard;
    if (depth == 0)
        throw value;
    deep(depth - 1, value);
    __asm__ volatile("" ::: "memory");
}

static void in_flight()
{
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 50; i++)
        threads.emplace_back([i, &wrong] {
            for (int turn = 0; turn < 20; turn++)
                try {
                    deep(10, i);
                } catch (int value) {
                    std::this_thread::yield();
                    if (turn % 5 == 0)
                        std::this_thread::sleep_for(100us);
                    if (std::uncaught_exceptions() != 0 || value != i)
                        wrong++;
                    try {
                        throw;
                    } catch (int again) {
                        if (again != i)
                            wrong++;
                    }
                }
        });
    for (auto &thread : threads)
        thread.join();
    check("exceptions_in_flight", wrong == 0 && Counted::alive == 0, "%d wrong, %d alive",
          wrong.load(), Counted::alive.load());
}

int main()
{
    in_flight();

    auto future = std::async(std::launch::async, []() -> int { throw std::runtime_error("carried"); });
    std::string what;
    try {
        future.get();
    } catch (std::runtime_error &error) {
        what = error.what();
    }
    check("exception_async", what == "carried", "caught `%s`", what.c_str());

    std::exception_ptr held;
    std::thread([&] {
        try {
            std::vector<int>().at(3);
        } catch (...) {
            held = std::current_exception();
        }
    }).join();
    bool range = false;
    try {
        std::rethrow_exception(held);
    } catch (std::out_of_range &) {
        range = true;
    }
    check("exception_ptr", range, "another exception");

    std::vector<std::future<int>> futures;
    for (int i = 0; i < 40; i++)
        futures.push_back(std::async(std::launch::async, [i] {
            std::this_thread::sleep_for(std::chrono::milliseconds(i % 4));
            if (i % 3 == 0)
                throw i;
            return i;
        }));
    int sum = 0, thrown = 0;
    for (auto &one : futures)
        try {
            sum += one.get();
        } catch (int value) {
            thrown += value;
        }
    check("futures", sum == 507 && thrown == 273, "sum %d, thrown %d", sum, thrown);
    return verdict();
}
