// Fork-join with oneTBB: tasks run on the stack of the worker that takes them and cannot wait for
// one another otherwise.
#include <vector>

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_invoke.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include "peer.hpp"

using namespace peer;
namespace tbb = oneapi::tbb;

static void null_fork()
{
	long samples = params.number("samples", 5), operations = params.number("operations", 5000);

	timed(samples, operations, [&] {
		tbb::task_group group;
		for (long i = 0; i < operations; i++) {
			long given = black_box(i), result;
			group.run([&] { result = given; });
			group.wait();
			right(result, i);
		}
	});
}

static void fork_batch()
{
	constexpr long BATCH = 1000;
	long samples = params.number("samples", 5), batches = params.number("batches", 5);
	std::vector<long> results(BATCH);

	timed(samples, batches * BATCH, [&] {
		tbb::task_group group;
		for (long i = 0; i < batches; i++) {
			long sum = 0;
			for (long index = 0; index < BATCH; index++) {
				long given = black_box(index);
				long *result = &results[index];
				group.run([=] { *result = given; });
			}
			group.wait();
			for (long &result : results) {
				sum += result;
				result = 0;
			}
			right(sum, BATCH * (BATCH - 1) / 2);
		}
	});
}

static void join_null()
{
	long samples = params.number("samples", 5), operations = params.number("operations", 500000);

	timed(samples, operations, [&] {
		for (long i = 0; i < operations; i++) {
			long first = black_box(i), second = black_box(1L), one, other;
			tbb::parallel_invoke([&] { one = first; }, [&] { other = second; });
			right(one + other, i + 1);
		}
	});
}

static long fib(long n)
{
	if (n < 2)
		return n;
	long one, other;
	tbb::parallel_invoke([&] { one = fib(n - 1); }, [&] { other = fib(n - 2); });
	return one + other;
}

// The sum of the numbers from first to last.
static long sum(long first, long last)
{
	if (first >= last)
		return first;
	long middle = (first + last) / 2, low, high;
	tbb::parallel_invoke([&] { low = sum(first, middle); }, [&] { high = sum(middle + 1, last); });
	return low + high;
}

static void fibonacci()
{
	fibonacci_by(fib, [](long) {});
}

static void sumtime()
{
	sumtime_by([](long n) { return sum(1, n); });
}

static const Programs PROGRAMS = {
	{ "fib", fibonacci },
	{ "fib_join", fibonacci },
	{ "fork_batch", fork_batch },
	{ "join_null", join_null },
	{ "null_fork", null_fork },
	{ "sumtime", sumtime },
	{ "sumtime_join", sumtime },
};

int main(int argc, char **argv)
{
	return peer::main(argc, argv, PROGRAMS, [](long workers, auto job) {
		tbb::global_control limit(tbb::global_control::max_allowed_parallelism, workers);
		tbb::task_arena arena(workers);
		arena.execute(job);
	});
}
