// The C++ header: values, exceptions, thread-local objects, locks that std's guards take.
#include <upcall.hpp>

#include <atomic>
#include <future>
#include <pthread.h>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

using namespace std::chrono_literals;

static std::atomic<int> destroyed;

struct Local {
    std::string text = "new";
    ~Local() { destroyed++; }
};
static thread_local Local local;

static void values_and_exceptions()
{
    CHECK(upcall::spawn([] { return 42; }).join() == 42);
    CHECK(upcall::spawn([](std::string a, int b) { return a + std::to_string(b); }, "n", 7).join() == "n7");
    auto moved = upcall::spawn([own = std::make_unique<int>(5)] { return *own; });
    auto other = std::move(moved);
    CHECK(!moved.joinable() && other.join() == 5);
    int there = 1;
    auto reference = upcall::spawn([&there]() -> int & { return there; });
    CHECK(&reference.join() == &there);
    for (int i = 0; i < 200; i++) {
        bool caught = false;
        auto throws = upcall::spawn([i] {
            struct Guard {
                ~Guard() { destroyed++; }
            } guard;
            if (i % 2)
                upcall::this_thread::yield();
            throw std::out_of_range("far");
        });
        int before = i + 1;
        try {
            throws.join();
        } catch (const std::out_of_range &error) {
            caught = error.what() == std::string("far");
        }
        CHECK(caught && destroyed == before);
    }
    // Nobody asks: dropped, and waited for.
    { auto unasked = upcall::spawn([] { throw 1; }); }
    // Exceptions in flight in many threads at once, each with its own.
    std::vector<upcall::thread<>> threads;
    for (int i = 0; i < 50; i++)
        threads.push_back(upcall::spawn([i] {
            try {
                throw i;
            } catch (int own) {
                upcall::this_thread::yield();
                CHECK(own == i && std::uncaught_exceptions() == 0);
                try {
                    throw;
                } catch (int again) {
                    CHECK(again == i);
                }
            }
        }));
    for (auto &thread : threads)
        thread.join();
}

static void ended_early()
{
    destroyed = 0;
    for (int i = 0; i < 20; i++) {
        auto exits = upcall::spawn([i] {
            struct Guard {
                ~Guard() { destroyed++; }
            } guard;
            i % 2 ? pthread_exit(nullptr) : upcall_thread_exit(nullptr);
        });
        bool caught = false;
        try {
            exits.join();
        } catch (const upcall::ended_early &) {
            caught = true;
        }
        CHECK(caught);
    }
    CHECK(destroyed == 20);
}

static void thread_local_objects()
{
    destroyed = 0;
    for (int i = 0; i < 100; i++) {
        upcall::spawn([] {
            CHECK(local.text == "new");
            local.text = "used, and too long to be kept in the object itself";
        }).join();
        CHECK(destroyed == i + 1);
    }
}

static void locks()
{
    upcall::mutex mutex;
    upcall::condition_variable changed;
    upcall::shared_mutex shared;
    int count = 0, turn = 0;
    std::vector<upcall::thread<>> threads;
    for (int i = 0; i < 8; i++)
        threads.push_back(upcall::spawn([&, i] {
            for (int k = 0; k < 200; k++) {
                std::scoped_lock guard(mutex);
                count++;
            }
            std::unique_lock lock(mutex);
            changed.wait(lock, [&] { return turn == i; });
            turn++;
            changed.notify_all();
            lock.unlock();
            std::shared_lock reads(shared);
        }));
    for (auto &thread : threads)
        thread.join();
    CHECK(count == 1600 && turn == 8);
    std::unique_lock lock(mutex);
    CHECK(!changed.wait_for(lock, 2ms, [] { return false; }));
    CHECK(!changed.wait_until(lock, std::chrono::system_clock::now() + 2ms, [] { return false; }));
    CHECK(!upcall::spawn([&] { return mutex.try_lock_for(2ms); }).join());
    CHECK(!upcall::spawn([&] { return mutex.try_lock_until(std::chrono::steady_clock::now() - 1h); }).join());
    // Beside std's own.
    std::promise<int> promise;
    auto sets = upcall::spawn([&] { promise.set_value(3); });
    CHECK(promise.get_future().get() == 3);
    std::thread plain([&] { CHECK(!mutex.try_lock()); });
    plain.join();
    upcall::barrier meets(3);
    std::atomic<int> leaders = 0;
    {
        auto one = upcall::spawn([&] { leaders += meets.arrive_and_wait(); });
        auto two = upcall::spawn([&] { leaders += meets.arrive_and_wait(); });
        leaders += meets.arrive_and_wait();
    }
    CHECK(leaders == 1);
    upcall::semaphore permits(1);
    permits.acquire();
    CHECK(!permits.try_acquire() && !permits.try_acquire_for(1ms));
    permits.release();
    CHECK(permits.try_acquire_for(std::chrono::hours::max()));
}

static void once_and_channels()
{
    upcall::once once;
    int calls = 0;
    try {
        once.call([&] { calls++; throw 5; });
        CHECK(false);
    } catch (int number) {
        CHECK(number == 5);
    }
    once.call([&] { calls++; });
    once.call([&] { calls++; });
    CHECK(calls == 2);

    struct Pair {
        explicit Pair(int a) : one(a), two(-a) {}
        int one, two;
    };
    upcall::channel<Pair> pairs(3);
    auto sends = upcall::spawn([&] {
        for (int i = 1; i <= 1000; i++)
            CHECK(pairs.send(Pair(i)));
        pairs.close();
        CHECK(!pairs.send(Pair(0)));
    });
    int sum = 0;
    while (auto pair = pairs.receive()) {
        CHECK(pair->one == -pair->two);
        sum += pair->one;
    }
    CHECK(sum == 500500);
    sends.join();
    upcall::channel<char> empty;
    CHECK(!empty.try_receive() && !empty.receive_for(1ms) && empty.try_send('x') && *empty.receive() == 'x');
}

static void errors()
{
    upcall::attributes large;
    large.stack_size = SIZE_MAX;
    try {
        upcall::spawn(large, [] {});
        CHECK(false);
    } catch (const std::system_error &error) {
        CHECK(error.code().value() == EINVAL);
    }
    upcall::semaphore over(0);
    upcall::spawn_detached([&over] { over.release(); });
    over.acquire();
}

static long fib(long n)
{
    if (n < 2)
        return n;
    auto [one, other] = upcall::join([n] { return fib(n - 1); }, [n] { return fib(n - 2); });
    return one + other;
}

static void joins()
{
    CHECK(fib(15) == 610);
    int there = 0;
    auto [nothing, text] = upcall::join([&there] { there = 1; }, [] { return std::string("other"); });
    static_assert(std::is_same_v<decltype(nothing), std::monostate>);
    CHECK(there == 1 && text == "other");
    for (int which = 1; which < 4; which++) {
        int caught = 0, ran = 0;
        try {
            upcall::join(
                [&] {
                    if (which & 1)
                        throw 1;
                },
                [&] {
                    ran = 1;
                    if (which & 2)
                        throw 2;
                });
        } catch (int thrown) {
            caught = thrown;
        }
        CHECK(caught == (which & 1 ? 1 : 2) && ran == 1);
    }
}

int main()
{
    start_as_told();
    joins();
    values_and_exceptions();
    ended_early();
    thread_local_objects();
    locks();
    once_and_channels();
    errors();
    puts("ok");
}
