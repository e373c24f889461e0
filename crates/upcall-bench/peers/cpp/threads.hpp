// The workloads that need nothing but threads, for any package T of them:
//
//   T::Thread T::spawn(body)   starts a thread that calls body, which outlives it
//   T::join(thread)            waits for its end
//   T::yield()
//   T::Mutex                   lock, unlock
//   T::Condition               wait(std::unique_lock<T::Mutex> &), notify_one
//   T::Semaphore               post, post(count), wait; its value is zero at first
//
// What each of them measures stands in the programs of the same names of upcall-workload.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "peer.hpp"

namespace peer {

template <class T>
void null_fork()
{
	long samples = params.number("samples", 5), operations = params.number("operations", 5000);

	timed(samples, operations, [&] {
		for (long i = 0; i < operations; i++) {
			long given = black_box(i), result;
			auto body = [&] { result = given; };
			auto thread = T::spawn(body);
			T::join(thread);
			right(result, i);
		}
	});
}

// A thread that returns what it was given.
struct Null {
	long given, result;

	void operator()()
	{
		result = given;
	}
};

template <class T>
void fork_batch()
{
	constexpr long BATCH = 1000;
	long samples = params.number("samples", 5), batches = params.number("batches", 5);
	std::vector<Null> bodies(BATCH);
	std::vector<typename T::Thread> threads;

	threads.reserve(BATCH);
	timed(samples, batches * BATCH, [&] {
		for (long i = 0; i < batches; i++) {
			long sum = 0;
			for (long index = 0; index < BATCH; index++) {
				bodies[index] = { black_box(index), 0 };
				threads.push_back(T::spawn(bodies[index]));
			}
			for (long index = 0; index < BATCH; index++) {
				T::join(threads[index]);
				sum += bodies[index].result;
			}
			threads.clear();
			right(sum, BATCH * (BATCH - 1) / 2);
		}
	});
}

template <class T>
long fib(long n)
{
	if (n < 2)
		return n;
	long one;
	auto body = [&] { one = fib<T>(n - 1); };
	auto thread = T::spawn(body);
	long other = fib<T>(n - 2);
	T::join(thread);
	return one + other;
}

// Declines where there is not the memory for so many threads, of so many KiB.
inline void enough_memory(long threads, long kib)
{
	long available = bytes_of("/proc/meminfo", "MemAvailable:");

	if (available / (kib << 10) < threads)
		fail(SKIP, "%ld threads may need %ld KiB each, and %ld MiB are available", threads, kib,
		     available >> 20);
}

// These packages run threads in the order in which they can run. So there are about half of all at
// a time, while a package that runs the newest one first has as many as calls are nested.
template <class T>
void fibonacci()
{
	fibonacci_by([](long n) { return fib<T>(n); }, [](long threads) { enough_memory(threads, 4); });
}

// The sum of the numbers from first to last.
template <class T>
long sum(long first, long last)
{
	if (first >= last)
		return first;
	long middle = (first + last) / 2, low, high;
	auto lower = [&] { low = sum<T>(first, middle); };
	auto upper = [&] { high = sum<T>(middle + 1, last); };
	auto one = T::spawn(lower), other = T::spawn(upper);
	T::join(one);
	T::join(other);
	return low + high;
}

template <class T>
void sumtime()
{
	enough_memory(2 * params.number("n", 2000), 8);
	sumtime_by([](long n) {
		long result;
		auto body = [&] { result = sum<T>(1, n); };
		auto thread = T::spawn(body);
		T::join(thread);
		return result;
	});
}

template <class T>
void blocked()
{
	long count = params.number("threads", 30000);

	enough_memory(count, 12);
	typename T::Semaphore gate, all;
	std::atomic<long> arrived { 0 };
	auto body = [&] {
		if (arrived.fetch_add(1, std::memory_order_relaxed) + 1 == count)
			all.post();
		gate.wait();
	};
	// What the first thread needs once is there before.
	auto nothing = [] {};
	auto first = T::spawn(nothing);
	T::join(first);
	std::vector<typename T::Thread> threads;
	threads.reserve(count);
	long before = resident_memory();
	double begin = now_ns();
	for (long i = 0; i < count; i++)
		threads.push_back(T::spawn(body));
	all.wait();
	double time = now_ns() - begin;
	long bytes = resident_memory() - before;
	gate.post(count);
	for (auto &thread : threads)
		T::join(thread);
	figure("ns", time / count);
	figure("bytes", (double)bytes / count);
}

template <class T>
void semaphore()
{
	long samples = params.number("samples", 5), operations = params.number("operations", 10000);

	timed(samples, operations, [&] {
		typename T::Semaphore semaphores[2];
		auto first = [&] {
			for (long i = 0; i < operations; i++) {
				semaphores[1].post();
				semaphores[0].wait();
			}
		};
		auto second = [&] {
			for (long i = 0; i < operations; i++) {
				semaphores[1].wait();
				semaphores[0].post();
			}
		};
		auto one = T::spawn(first), other = T::spawn(second);
		T::join(one);
		T::join(other);
	});
}

// The mutex guards whose turn it is.
template <class T>
struct Exchange {
	typename T::Mutex mutex;
	typename T::Condition conditions[2];
	int turn = 0;

	void take_turns(int me, long operations)
	{
		std::unique_lock<typename T::Mutex> lock(mutex);

		for (long i = 0; i < operations; i++) {
			while (turn != me)
				conditions[me].wait(lock);
			turn = 1 - me;
			conditions[1 - me].notify_one();
		}
	}
};

template <class T>
void signal_wait()
{
	long samples = params.number("samples", 5), operations = params.number("operations", 10000);

	timed(samples, operations, [&] {
		Exchange<T> exchange;
		auto first = [&] { exchange.take_turns(0, operations); };
		auto second = [&] { exchange.take_turns(1, operations); };
		auto one = T::spawn(first), other = T::spawn(second);
		T::join(one);
		T::join(other);
	});
}

template <class T>
void yields()
{
	long samples = params.number("samples", 5), operations = params.number("operations", 50000);

	timed(samples, 2 * operations, [&] {
		auto body = [&] {
			for (long i = 0; i < operations; i++)
				T::yield();
		};
		auto one = T::spawn(body), other = T::spawn(body);
		T::join(one);
		T::join(other);
	});
}

template <class T>
void mutex()
{
	constexpr long THREADS = 64;
	long samples = params.number("samples", 5), operations = params.number("operations", 10000);
	std::vector<typename T::Thread> threads;

	for (long sample = 0; sample <= samples; sample++) {
		typename T::Mutex mutex;
		long count = 0;
		auto body = [&] {
			for (long i = 0; i < operations; i++) {
				{
					std::lock_guard<typename T::Mutex> lock(mutex);
					count++;
				}
				spin(20);
			}
		};
		double begin = now_ns();
		for (long i = 0; i < THREADS; i++)
			threads.push_back(T::spawn(body));
		for (auto &thread : threads)
			T::join(thread);
		double time = now_ns() - begin;
		threads.clear();
		right(count, THREADS * operations);
		if (sample > 0)
			figure("Mops/s", count * 1000.0 / time);
	}
}

// The programs of any package of threads.
template <class T>
Programs common()
{
	return {
		{ "blocked", blocked<T> },
		{ "fib", fibonacci<T> },
		{ "fork_batch", fork_batch<T> },
		{ "mutex_64", mutex<T> },
		{ "null_fork", null_fork<T> },
		{ "semaphore", semaphore<T> },
		{ "signal_wait", signal_wait<T> },
		{ "sumtime", sumtime<T> },
		{ "yield", yields<T> },
	};
}

} // namespace peer
