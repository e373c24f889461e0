// The workloads with fibers of Boost.Fiber: round-robin on one worker, with work stealing on more.
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include <boost/fiber/all.hpp>
#include <sys/mman.h>

#include "threads.hpp"

namespace fibers = boost::fibers;

namespace {

// Stacks for the library, which are used again: malloc would return their memory to the kernel, and
// the library's own pool is for one kernel thread and touches both ends of each. A kernel thread
// keeps some for itself, since a fiber may end on another one than it was made on.
class Stacks {
	// Enough for what a fiber does here; the library's own benchmarks are content with a page.
	static constexpr std::size_t SIZE = 16 << 10;
	static constexpr std::size_t SOME = 64;

	static inline std::mutex mutex;
	static inline std::vector<char *> common;
	static inline thread_local std::vector<char *> own;

	static void move_some(std::vector<char *> &from, std::vector<char *> &to)
	{
		for (std::size_t i = 0; i < SOME && !from.empty(); i++) {
			to.push_back(from.back());
			from.pop_back();
		}
	}

	[[gnu::noinline]] static void refill()
	{
		{
			std::lock_guard<std::mutex> lock(mutex);
			move_some(common, own);
		}
		if (!own.empty())
			return;
		int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
		void *memory = mmap(nullptr, SOME * SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
		if (memory == MAP_FAILED)
			peer::fail(peer::SKIP, "not one thread more can be made: %m");
		for (std::size_t i = SOME; i > 0; i--)
			own.push_back(static_cast<char *>(memory) + i * SIZE);
	}

	[[gnu::noinline]] static void give_back()
	{
		std::lock_guard<std::mutex> lock(mutex);
		move_some(own, common);
	}

public:
	boost::context::stack_context allocate()
	{
		boost::context::stack_context stack;

		if (own.empty())
			refill();
		stack.size = SIZE;
		stack.sp = own.back();
		own.pop_back();
		return stack;
	}

	void deallocate(boost::context::stack_context &stack) noexcept
	{
		own.push_back(static_cast<char *>(stack.sp));
		if (own.size() > 2 * SOME)
			give_back();
	}
};

struct Boost {
	using Thread = fibers::fiber;
	using Mutex = fibers::mutex;
	using Condition = fibers::condition_variable;

	class Semaphore {
		Mutex mutex;
		Condition posted;
		long value = 0;

	public:
		void post()
		{
			std::unique_lock<Mutex> lock(mutex);
			value++;
			lock.unlock();
			posted.notify_one();
		}

		void post(long count)
		{
			std::unique_lock<Mutex> lock(mutex);
			value += count;
			lock.unlock();
			posted.notify_all();
		}

		void wait()
		{
			std::unique_lock<Mutex> lock(mutex);
			posted.wait(lock, [&] { return value > 0; });
			value--;
		}
	};

	template <class Body>
	static Thread spawn(Body &body)
	{
		return Thread(std::allocator_arg, Stacks(), [&body] { body(); });
	}

	static void join(Thread &thread)
	{
		thread.join();
	}

	static void yield()
	{
		boost::this_fiber::yield();
	}
};

// Kernel threads that pass one after the other once all are there.
class Barrier {
	std::mutex mutex;
	std::condition_variable all;
	long missing;

public:
	explicit Barrier(long count) : missing(count)
	{
	}

	void wait()
	{
		std::unique_lock<std::mutex> lock(mutex);
		if (--missing == 0)
			all.notify_all();
		all.wait(lock, [&] { return missing == 0; });
	}
};

// Calls the job with so many workers, this kernel thread among them.
template <class Job>
void with_workers(long workers, Job job)
{
	Barrier started(workers);
	fibers::mutex mutex;
	fibers::condition_variable ended;
	bool done = false;
	std::vector<std::thread> others;
	auto join_in = [&] {
		fibers::use_scheduling_algorithm<fibers::algo::work_stealing>(workers);
		started.wait();
	};

	for (long i = 1; i < workers; i++)
		others.emplace_back([&] {
			join_in();
			std::unique_lock<fibers::mutex> lock(mutex);
			ended.wait(lock, [&] { return done; });
		});
	join_in();
	job();
	{
		std::lock_guard<fibers::mutex> lock(mutex);
		done = true;
	}
	ended.notify_all();
	for (auto &other : others)
		other.join();
}

} // namespace

int main(int argc, char **argv)
{
	return peer::main(argc, argv, peer::common<Boost>(), [](long workers, auto job) {
		if (workers == 1)
			job();
		else
			with_workers(workers, job);
	});
}
