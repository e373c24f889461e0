// thread_local objects: built on first use in each thread, their own, destroyed at its end in
// reverse order; call_once with an exception.
#include "case.h"
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

static std::atomic<int> built{0}, destroyed{0}, wrong{0};

struct Object {
    std::string text = std::string(40, 'x');
    int owner = -1;
    Object() { built++; }
    ~Object()
    {
        destroyed++;
        if (text.size() != 40)
            wrong++;
    }
};

static thread_local Object object;
static thread_local std::vector<int> order;
static std::vector<int> seen;

struct Ordered {
    int number;
    ~Ordered()
    {
        static std::mutex mutex;
        std::lock_guard lock(mutex);
        seen.push_back(number);
    }
};

int main()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 500; i++)
        threads.emplace_back([i] {
            if (object.owner != -1)
                wrong++;
            object.owner = i;
            order.push_back(i);
            for (int turn = 0; turn < 10; turn++) {
                std::this_thread::yield();
                if (object.owner != i || order.size() != 1 || order[0] != i)
                    wrong++;
            }
        });
    for (auto &thread : threads)
        thread.join();
    check("thread_local", wrong == 0 && built == 500 && destroyed == 500,
          "%d wrong, %d built, %d destroyed", wrong.load(), built.load(), destroyed.load());

    std::thread([] {
        thread_local Ordered first{1};
        std::this_thread::yield();
        thread_local Ordered second{2};
        __asm__ volatile("" ::"r"(&first), "r"(&second) : "memory");
    }).join();
    check("thread_local_order", seen == std::vector<int>({2, 1}), "%zu destroyed", seen.size());

    std::once_flag once;
    std::atomic<int> tries{0}, runs{0}, thrown{0};
    threads.clear();
    for (int i = 0; i < 20; i++)
        threads.emplace_back([&] {
            try {
                std::call_once(once, [&] {
                    if (++tries < 3)
                        throw 1;
                    runs++;
                });
            } catch (int) {
                thrown++;
            }
        });
    for (auto &thread : threads)
        thread.join();
    check("call_once", runs == 1 && thrown == 2, "%d runs, %d thrown", runs.load(), thrown.load());
    return verdict();
}
