/* Upcall for C++20: upcall.h with lifetimes, lambdas and exceptions. It only calls the functions of upcall.h.
 *
 * - Errors are std::system_error with the error number. A function with a time limit returns bool.
 * - upcall::spawn(f, arguments...) gives an upcall::thread<R>. join() returns what f returned, or throws what ended
 *   the thread, as std::future::get() does. The destructor waits (as that of std::jthread), and drops a result that
 *   was not asked for, exceptions too (as that of std::async's future). An exception that ends a detached thread ends
 *   the process (std::terminate), since no thread could receive it.
 * - upcall::join(one, other) is fork and join.
 * - pthread_exit(3), upcall_thread_exit() and cancellation run the destructors on the thread's stack; join() then
 *   throws upcall::ended_early. Code that catches everything (catch (...)) must throw again, as everywhere.
 * - mutex, shared_mutex and once have the names and members of std's, so that std::lock_guard, std::unique_lock,
 *   std::shared_lock and std::scoped_lock take them. Time limits are any of std::chrono's. They are converted to
 *   moments of std::chrono::steady_clock, which is CLOCK_MONOTONIC. */
#ifndef UPCALL_HPP
#define UPCALL_HPP

#include <array>
#include <bit>
#include <chrono>
#include <cerrno>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#if __has_include(<cxxabi.h>)
#include <cxxabi.h>
#endif

#include "upcall.h"

namespace upcall {

namespace detail {

inline void check(int number, const char *what)
{
    if (number != 0)
        throw std::system_error(number, std::generic_category(), what);
}

/* Returns true if it came in time. */
inline bool in_time(int number, const char *what, int late = ETIMEDOUT)
{
    if (number == late)
        return false;
    check(number, what);
    return true;
}

template <class Clock, class Duration>
timespec limit(const std::chrono::time_point<Clock, Duration> &moment)
{
    using namespace std::chrono;
    nanoseconds left;
    if constexpr (std::same_as<Clock, steady_clock>)
        left = ceil<nanoseconds>(moment.time_since_epoch());
    else
        left = ceil<nanoseconds>(moment - Clock::now()) + steady_clock::now().time_since_epoch();
    if (left < nanoseconds::zero())
        left = nanoseconds::zero();
    auto whole = duration_cast<seconds>(left);
    timespec result{};
    result.tv_sec = static_cast<time_t>(whole.count());
    result.tv_nsec = static_cast<long>((left - whole).count());
    return result;
}

template <class Rep, class Period>
timespec after(const std::chrono::duration<Rep, Period> &time)
{
    using namespace std::chrono;
    auto now = steady_clock::now();
    /* Beyond the range of the clock: never. */
    if (duration<double>(time) >= duration<double>(steady_clock::time_point::max() - now))
        return limit(steady_clock::time_point::max());
    return limit(now + ceil<steady_clock::duration>(time));
}

} // namespace detail

/* What join() throws if pthread_exit(3) or the like has ended the thread. */
class ended_early : public std::runtime_error {
public:
    ended_early() : std::runtime_error("the thread was ended early") {}
};

/* Settings of the runtime: struct upcall_options. */
struct options : upcall_options {
    options() : upcall_options UPCALL_OPTIONS_INITIALIZER {}
};

/* Starts the runtime. Call it first in main(). */
inline void start(const upcall_options &settings = options())
{
    detail::check(upcall_start(&settings), "upcall_start");
}

/* Properties of a thread: struct upcall_thread_attr. */
struct attributes : upcall_thread_attr {
    attributes() : upcall_thread_attr UPCALL_THREAD_ATTR_INITIALIZER {}
};

namespace detail {

/* How a thread ended: its value, or what it threw. Neither: it ended early. */
template <class R>
struct outcome {
    std::optional<R> value;
    std::exception_ptr thrown;

    template <class F>
    void take(F &&function)
    {
        value.emplace(std::forward<F>(function)());
    }

    R give()
    {
        if (thrown)
            std::rethrow_exception(thrown);
        if (!value)
            throw ended_early();
        return *std::move(value);
    }
};

template <class R>
struct outcome<R &> {
    R *value = nullptr;
    std::exception_ptr thrown;

    template <class F>
    void take(F &&function)
    {
        value = std::addressof(std::forward<F>(function)());
    }

    R &give()
    {
        if (thrown)
            std::rethrow_exception(thrown);
        if (!value)
            throw ended_early();
        return *value;
    }
};

template <>
struct outcome<void> {
    bool value = false;
    std::exception_ptr thrown;

    template <class F>
    void take(F &&function)
    {
        std::forward<F>(function)();
        value = true;
    }

    void give()
    {
        if (thrown)
            std::rethrow_exception(thrown);
        if (!value)
            throw ended_early();
    }
};

/* Calls the function of a thread or a once, and keeps what it throws. The unwinding of pthread_exit(3) goes on. */
template <class F>
void keep(std::exception_ptr &thrown, F &&function)
{
    try {
        std::forward<F>(function)();
    }
#ifdef __GLIBCXX__
    catch (abi::__forced_unwind &) {
        throw;
    }
#endif
    catch (...) {
        thrown = std::current_exception();
    }
}

/* What a thread and its handle share. */
template <class R>
struct shared {
    outcome<R> ended;
    virtual ~shared() = default;
    virtual void call() = 0;
};

template <class R, class F, class Arguments>
struct work final : shared<R> {
    F function;
    Arguments arguments;

    template <class... A>
    explicit work(F &&f, A &&...a) : function(std::move(f)), arguments(std::forward<A>(a)...) {}

    void call() override
    {
        this->ended.take([this]() -> R { return std::apply(std::move(function), std::move(arguments)); });
    }
};

template <class R>
void *joined(void *argument)
{
    auto *own = static_cast<shared<R> *>(argument);
    keep(own->ended.thrown, [own] { own->call(); });
    return nullptr;
}

/* An exception of f ends the process. However f ends, this frees the memory: nobody else does. */
template <class R>
void *detached(void *argument)
{
    std::unique_ptr<shared<R>> own(static_cast<shared<R> *>(argument));
    std::exception_ptr thrown;
    keep(thrown, [&own] { own->call(); });
    if (thrown)
        std::terminate();
    return nullptr;
}

} // namespace detail

/* The right to wait for a thread and to have its result. It has one owner. */
template <class R = void>
class thread {
public:
    thread() noexcept = default;
    thread(thread &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), shared_(std::move(other.shared_))
    {
    }
    thread &operator=(thread &&other) noexcept
    {
        if (this != &other) {
            wait();
            handle_ = std::exchange(other.handle_, nullptr);
            shared_ = std::move(other.shared_);
        }
        return *this;
    }
    ~thread() { wait(); }

    /* Returns true if there is a thread that has not been joined. */
    bool joinable() const noexcept { return handle_ != nullptr; }
    upcall_thread_t native_handle() const noexcept { return handle_; }

    /* Waits until the thread has ended. Returns what f returned, or throws what it threw. */
    R join()
    {
        detail::check(upcall_thread_join(handle_, nullptr), "upcall_thread_join");
        handle_ = nullptr;
        auto ended = std::move(shared_);
        return ended->ended.give();
    }

    /* Ends the thread's park(), or its next one. */
    void unpark() { detail::check(upcall_thread_unpark(handle_), "upcall_thread_unpark"); }

private:
    template <class F, class... A>
    friend auto spawn(const attributes &, F &&, A &&...)
        -> thread<std::invoke_result_t<std::decay_t<F>, std::decay_t<A>...>>;

    void wait() noexcept
    {
        /* Fails in the thread itself, which is an error of the program, as with std::jthread. */
        if (handle_ && upcall_thread_join(handle_, nullptr) != 0)
            std::terminate();
        handle_ = nullptr;
        shared_.reset();
    }

    upcall_thread_t handle_ = nullptr;
    std::unique_ptr<detail::shared<R>> shared_;
};

/* Makes a thread that calls f with copies of the arguments. */
template <class F, class... A>
auto spawn(const attributes &properties, F &&f, A &&...arguments)
    -> thread<std::invoke_result_t<std::decay_t<F>, std::decay_t<A>...>>
{
    using R = std::invoke_result_t<std::decay_t<F>, std::decay_t<A>...>;
    using work = detail::work<R, std::decay_t<F>, std::tuple<std::decay_t<A>...>>;
    if (properties.detached)
        throw std::invalid_argument("upcall::spawn: use upcall::spawn_detached");
    thread<R> made;
    made.shared_ = std::make_unique<work>(std::decay_t<F>(std::forward<F>(f)), std::forward<A>(arguments)...);
    detail::check(
        upcall_thread_create(&made.handle_, &properties, detail::joined<R>, made.shared_.get()),
        "upcall_thread_create");
    return made;
}

template <class F, class... A>
    requires(!std::derived_from<std::decay_t<F>, attributes>)
auto spawn(F &&f, A &&...arguments)
{
    return spawn(attributes(), std::forward<F>(f), std::forward<A>(arguments)...);
}

/* Makes a detached thread. */
template <class F, class... A>
void spawn_detached(attributes properties, F &&f, A &&...arguments)
{
    using R = std::invoke_result_t<std::decay_t<F>, std::decay_t<A>...>;
    using work = detail::work<R, std::decay_t<F>, std::tuple<std::decay_t<A>...>>;
    properties.detached = 1;
    std::unique_ptr<detail::shared<R>> own =
        std::make_unique<work>(std::decay_t<F>(std::forward<F>(f)), std::forward<A>(arguments)...);
    detail::check(upcall_thread_create(nullptr, &properties, detail::detached<R>, own.get()),
                  "upcall_thread_create");
    own.release();
}

template <class F, class... A>
    requires(!std::derived_from<std::decay_t<F>, attributes>)
void spawn_detached(F &&f, A &&...arguments)
{
    spawn_detached(attributes(), std::forward<F>(f), std::forward<A>(arguments)...);
}

/* What the calling thread does. */
namespace detail {

/* What one side of a join gives: a value (void gives nothing), or what was thrown. */
template <class F>
struct side {
    using result = std::invoke_result_t<F>;
    F &function;
    std::exception_ptr thrown = nullptr;
    std::optional<std::conditional_t<std::is_void_v<result>, std::monostate, result>> value = std::nullopt;

    void run() noexcept
    {
        try {
            if constexpr (std::is_void_v<result>) {
                std::invoke(std::forward<F>(function));
                value.emplace();
            } else {
                value.emplace(std::invoke(std::forward<F>(function)));
            }
        } catch (...) {
            thrown = std::current_exception();
        }
    }
};

} // namespace detail

/* Runs both, possibly at the same time, and returns a pair of their results (std::monostate for void). As upcall_fork():
 * it costs little more than two calls. one runs in the calling thread. other runs there afterwards, unless a virtual
 * processor without other work begins it before. If one of them throws, so does this, when both have ended; if both do,
 * what one has thrown. Neither may return a reference, end the thread or be cancelled. */
template <class F, class G>
auto join(F &&one, G &&other)
{
    detail::side<F> first{one};
    detail::side<G> second{other};
    upcall_fork_t fork;
    auto run = [](void *argument) noexcept -> void * {
        static_cast<detail::side<G> *>(argument)->run();
        return nullptr;
    };
    detail::check(upcall_fork(&fork, run, &second), "upcall_fork");
    first.run();
    detail::check(upcall_fork_join(&fork, nullptr), "upcall_fork_join");
    if (first.thrown || second.thrown)
        std::rethrow_exception(first.thrown ? first.thrown : second.thrown);
    return std::pair(std::move(*first.value), std::move(*second.value));
}

/* upcall_critical_enter() and upcall_critical_leave(), for the lifetime of an object. */
class critical_section {
public:
    critical_section() noexcept { upcall_critical_enter(); }
    ~critical_section() { upcall_critical_leave(); }
    critical_section(const critical_section &) = delete;
    critical_section &operator=(const critical_section &) = delete;
};

/* Calls f in a critical section. */
template <class F>
decltype(auto) critical(F &&f)
{
    critical_section inside;
    return std::forward<F>(f)();
}

namespace this_thread {

inline upcall_thread_t self() { return upcall_thread_self(); }
inline void yield() { upcall_thread_yield(); }
inline void park() { detail::check(upcall_thread_park(), "upcall_thread_park"); }

template <class Clock, class Duration>
bool park_until(const std::chrono::time_point<Clock, Duration> &moment)
{
    auto deadline = detail::limit(moment);
    return detail::in_time(upcall_thread_timedpark(&deadline), "upcall_thread_timedpark");
}

template <class Rep, class Period>
void sleep_for(const std::chrono::duration<Rep, Period> &time)
{
    auto ns = std::chrono::ceil<std::chrono::nanoseconds>(time).count();
    upcall_thread_sleep(ns < 0 ? 0 : static_cast<uint64_t>(ns));
}

} // namespace this_thread

/* As std::timed_mutex. */
class mutex {
public:
    constexpr mutex() noexcept = default;
    mutex(const mutex &) = delete;
    mutex &operator=(const mutex &) = delete;

    void lock() { detail::check(upcall_mutex_lock(&own_), "upcall_mutex_lock"); }
    bool try_lock() { return detail::in_time(upcall_mutex_trylock(&own_), "upcall_mutex_trylock", EBUSY); }
    void unlock() { upcall_mutex_unlock(&own_); }

    template <class Rep, class Period>
    bool try_lock_for(const std::chrono::duration<Rep, Period> &time)
    {
        return lock_until(detail::after(time));
    }
    template <class Clock, class Duration>
    bool try_lock_until(const std::chrono::time_point<Clock, Duration> &moment)
    {
        return lock_until(detail::limit(moment));
    }

    upcall_mutex_t *native_handle() noexcept { return &own_; }

private:
    bool lock_until(timespec deadline)
    {
        return detail::in_time(upcall_mutex_timedlock(&own_, &deadline), "upcall_mutex_timedlock");
    }

    upcall_mutex_t own_ = UPCALL_MUTEX_INITIALIZER;
};

/* As std::condition_variable, with std::unique_lock<upcall::mutex>. */
class condition_variable {
public:
    constexpr condition_variable() noexcept = default;
    condition_variable(const condition_variable &) = delete;
    condition_variable &operator=(const condition_variable &) = delete;

    void notify_one() noexcept { upcall_cond_signal(&own_); }
    void notify_all() noexcept { upcall_cond_broadcast(&own_); }

    void wait(std::unique_lock<mutex> &lock)
    {
        detail::check(upcall_cond_wait(&own_, lock.mutex()->native_handle()), "upcall_cond_wait");
    }
    template <class Predicate>
    void wait(std::unique_lock<mutex> &lock, Predicate holds)
    {
        while (!holds())
            wait(lock);
    }
    /* Returns the last result of holds(). */
    template <class Clock, class Duration, class Predicate>
    bool wait_until(std::unique_lock<mutex> &lock, const std::chrono::time_point<Clock, Duration> &moment,
                    Predicate holds)
    {
        return wait_until(lock, detail::limit(moment), holds);
    }
    template <class Rep, class Period, class Predicate>
    bool wait_for(std::unique_lock<mutex> &lock, const std::chrono::duration<Rep, Period> &time,
                  Predicate holds)
    {
        return wait_until(lock, detail::after(time), holds);
    }

private:
    template <class Predicate>
    bool wait_until(std::unique_lock<mutex> &lock, timespec deadline, Predicate &holds)
    {
        while (!holds())
            if (!detail::in_time(upcall_cond_timedwait(&own_, lock.mutex()->native_handle(), &deadline),
                                 "upcall_cond_timedwait"))
                return holds();
        return true;
    }

    upcall_cond_t own_ = UPCALL_COND_INITIALIZER;
};

/* As std::shared_mutex. */
class shared_mutex {
public:
    constexpr shared_mutex() noexcept = default;
    shared_mutex(const shared_mutex &) = delete;
    shared_mutex &operator=(const shared_mutex &) = delete;

    void lock() { detail::check(upcall_rwlock_wrlock(&own_), "upcall_rwlock_wrlock"); }
    bool try_lock() { return detail::in_time(upcall_rwlock_trywrlock(&own_), "upcall_rwlock_trywrlock", EBUSY); }
    void unlock() { upcall_rwlock_unlock(&own_); }
    void lock_shared() { detail::check(upcall_rwlock_rdlock(&own_), "upcall_rwlock_rdlock"); }
    bool try_lock_shared()
    {
        return detail::in_time(upcall_rwlock_tryrdlock(&own_), "upcall_rwlock_tryrdlock", EBUSY);
    }
    void unlock_shared() { upcall_rwlock_unlock(&own_); }

private:
    upcall_rwlock_t own_ = UPCALL_RWLOCK_INITIALIZER;
};

/* As std::counting_semaphore. */
class semaphore {
public:
    constexpr explicit semaphore(uint32_t value) noexcept : own_ UPCALL_SEMAPHORE_INITIALIZER(value) {}
    semaphore(const semaphore &) = delete;
    semaphore &operator=(const semaphore &) = delete;

    void acquire() { detail::check(upcall_semaphore_wait(&own_), "upcall_semaphore_wait"); }
    bool try_acquire()
    {
        return detail::in_time(upcall_semaphore_trywait(&own_), "upcall_semaphore_trywait", EAGAIN);
    }
    template <class Rep, class Period>
    bool try_acquire_for(const std::chrono::duration<Rep, Period> &time)
    {
        auto deadline = detail::after(time);
        return detail::in_time(upcall_semaphore_timedwait(&own_, &deadline), "upcall_semaphore_timedwait");
    }
    void release() { detail::check(upcall_semaphore_post(&own_), "upcall_semaphore_post"); }

private:
    upcall_semaphore_t own_;
};

/* Threads meet. */
class barrier {
public:
    explicit barrier(uint32_t count) { detail::check(upcall_barrier_init(&own_, count), "upcall_barrier_init"); }
    barrier(const barrier &) = delete;
    barrier &operator=(const barrier &) = delete;

    /* Returns true in one of the threads that meet. */
    bool arrive_and_wait()
    {
        int answer = upcall_barrier_wait(&own_);
        if (answer == UPCALL_BARRIER_SERIAL_THREAD)
            return true;
        detail::check(answer, "upcall_barrier_wait");
        return false;
    }

private:
    upcall_barrier_t own_;
};

/* As std::once_flag and std::call_once: call_once throws what f throws, and the next caller tries again. */
class once {
public:
    constexpr once() noexcept = default;
    once(const once &) = delete;
    once &operator=(const once &) = delete;

    template <class F>
    void call(F &&f)
    {
        struct attempt {
            std::remove_reference_t<F> &function;
            std::exception_ptr thrown;
        } own{f, nullptr};
        int answer = upcall_once(
            &own_,
            [](void *argument) noexcept -> int {
                auto *own = static_cast<attempt *>(argument);
                try {
                    own->function();
                } catch (...) {
                    own->thrown = std::current_exception();
                }
                return own->thrown ? ECANCELED : 0;
            },
            &own);
        if (own.thrown)
            std::rethrow_exception(own.thrown);
        detail::check(answer, "upcall_once");
    }

private:
    upcall_once_t own_ = UPCALL_ONCE_INITIALIZER;
};

/* A channel of values. They are copied as bytes, so their type must allow that. For other types send the release() of
 * a std::unique_ptr. */
template <class T>
    requires std::is_trivially_copyable_v<T>
class channel {
public:
    explicit channel(size_t capacity = UPCALL_UNBOUNDED)
    {
        detail::check(upcall_channel_create(&own_, sizeof(T), capacity), "upcall_channel_create");
    }
    channel(const channel &) = delete;
    channel &operator=(const channel &) = delete;
    ~channel()
    {
        if (upcall_channel_destroy(own_) != 0)
            std::terminate();
    }

    /* Returns true if the value was sent; false: the channel is closed. */
    bool send(const T &value)
    {
        return detail::in_time(upcall_channel_send(own_, &value), "upcall_channel_send", EPIPE);
    }
    /* Returns true if the value was sent; false: that would wait, or the channel is closed. */
    bool try_send(const T &value)
    {
        int answer = upcall_channel_trysend(own_, &value);
        return answer != EPIPE && detail::in_time(answer, "upcall_channel_trysend", EAGAIN);
    }
    /* Returns nothing if the channel is closed and empty. */
    std::optional<T> receive() { return received(&upcall_channel_receive, "upcall_channel_receive"); }
    /* Returns nothing if there is no value now, or the channel is closed and empty. */
    std::optional<T> try_receive()
    {
        return received(&upcall_channel_tryreceive, "upcall_channel_tryreceive");
    }
    /* Returns nothing if no value came in time, or the channel is closed and empty. */
    template <class Rep, class Period>
    std::optional<T> receive_for(const std::chrono::duration<Rep, Period> &time)
    {
        auto deadline = detail::after(time);
        return received(
            [&deadline](upcall_channel_t *own, void *value) {
                return upcall_channel_timedreceive(own, value, &deadline);
            },
            "upcall_channel_timedreceive");
    }
    void close() noexcept { upcall_channel_close(own_); }

private:
    template <class Receive>
    std::optional<T> received(Receive receive, const char *what)
    {
        std::array<std::byte, sizeof(T)> bytes;
        int answer = receive(own_, bytes.data());
        if (answer == EPIPE || answer == EAGAIN || answer == ETIMEDOUT)
            return std::nullopt;
        detail::check(answer, what);
        return std::bit_cast<T>(bytes);
    }

    upcall_channel_t *own_ = nullptr;
};

} // namespace upcall

#endif /* UPCALL_HPP */
