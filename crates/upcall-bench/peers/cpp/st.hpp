// State Threads as a package of threads: they run on one kernel thread, without preemption.
#pragma once

#include <cerrno>
#include <mutex>

#include <st.h>

#include "peer.hpp"

namespace peer {

// What a call has returned, if it is not nothing.
template <class Value>
Value checked(Value value, const char *what)
{
	if (!value)
		fail(FAILED, "%s: %m", what);
	return value;
}

struct St {
	using Thread = st_thread_t;

	class Mutex {
		st_mutex_t mutex = checked(st_mutex_new(), "st_mutex_new");

	public:
		Mutex() = default;
		Mutex(const Mutex &) = delete;

		~Mutex()
		{
			st_mutex_destroy(mutex);
		}

		void lock()
		{
			st_mutex_lock(mutex);
		}

		void unlock()
		{
			st_mutex_unlock(mutex);
		}
	};

	class Condition {
		st_cond_t condition = checked(st_cond_new(), "st_cond_new");

	public:
		Condition() = default;
		Condition(const Condition &) = delete;

		~Condition()
		{
			st_cond_destroy(condition);
		}

		void wait()
		{
			st_cond_wait(condition);
		}

		// Nobody runs between the two.
		void wait(std::unique_lock<Mutex> &lock)
		{
			lock.unlock();
			wait();
			lock.lock();
		}

		void notify_one()
		{
			st_cond_signal(condition);
		}

		void notify_all()
		{
			st_cond_broadcast(condition);
		}
	};

	// Without preemption it needs no mutex.
	class Semaphore {
		Condition posted;
		long value = 0;

	public:
		void post()
		{
			value++;
			posted.notify_one();
		}

		void post(long count)
		{
			value += count;
			posted.notify_all();
		}

		void wait()
		{
			while (value == 0)
				posted.wait();
			value--;
		}
	};

	// Of the library's own size, which is 64 KiB.
	template <class Body>
	static Thread spawn(Body &body)
	{
		auto routine = [](void *body) -> void * {
			(*static_cast<Body *>(body))();
			return nullptr;
		};
		Thread thread = st_thread_create(routine, &body, true, 0);
		// Others wait for it, and would for ever.
		if (!thread)
			fail(SKIP, "not one thread more can be made: %m");
		return thread;
	}

	static void join(Thread thread)
	{
		st_thread_join(thread, nullptr);
	}

	// Without anything to wait for: its way to yield.
	static void yield()
	{
		st_usleep(0);
	}
};

} // namespace peer
