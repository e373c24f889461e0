// The protocol of upcall-workload: the command line, the parameters and the output.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include <time.h>
#include <unistd.h>

namespace peer {

// Exit statuses: a bad command line, and a workload that this machine cannot run.
constexpr int FAILED = 1, USAGE = 2, SKIP = 77;

// Ends the process at once, whatever other threads do.
[[noreturn, gnu::format(printf, 2, 3)]] inline void fail(int status, const char *format, ...)
{
	va_list arguments;

	fputs("upcall-peer: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	_exit(status);
}

inline double now_ns()
{
	timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

// An empty loop that the compiler must keep.
[[gnu::noinline]] inline void spin(long iterations)
{
	for (long i = 0; i < iterations; i++)
		__asm__ volatile("");
}

// A value of which the compiler knows nothing.
inline long black_box(long value)
{
	__asm__ volatile("" : "+r"(value));
	return value;
}

inline void right(long found, long expected)
{
	if (found != expected)
		fail(FAILED, "the threads' results come to %ld and not to %ld", found, expected);
}

// KEY=VALUE words. One that no workload asks for is an error.
class Params {
	std::map<std::string, std::string> words;
	std::set<std::string> used;

public:
	void add(const std::string &word)
	{
		size_t equals = word.find('=');

		if (equals == std::string::npos)
			fail(USAGE, "expected KEY=VALUE, found %s", word.c_str());
		if (!words.emplace(word.substr(0, equals), word.substr(equals + 1)).second)
			fail(USAGE, "%s is given twice", word.substr(0, equals).c_str());
	}

	std::string text(const char *key)
	{
		used.insert(key);
		auto found = words.find(key);
		return found == words.end() ? "" : found->second;
	}

	long number(const char *key, long otherwise)
	{
		std::string value = text(key);
		char *end;

		if (!words.count(key))
			return otherwise;
		long number = strtol(value.c_str(), &end, 10);
		if (value.empty() || *end || number < 0)
			fail(USAGE, "%s=%s is not a number", key, value.c_str());
		return number;
	}

	void all_used() const
	{
		for (auto &[key, value] : words)
			if (!used.count(key))
				fail(USAGE, "this workload has no parameter %s", key.c_str());
	}
};

inline Params params;
inline std::string output;

inline void figure(const char *series, double value)
{
	char line[100];

	snprintf(line, sizeof line, "%s %.3f\n", series, value);
	output += line;
}

using Programs = std::map<std::string, void (*)()>;

// Runs the workload that the command line names: start is told of how many workers, and calls it on
// one of its threads.
template <class Start>
int main(int argc, char **argv, const Programs &programs, Start start)
{
	auto program = programs.find(argc > 1 ? argv[1] : "");

	if (program == programs.end()) {
		std::string names;
		for (auto &[name, body] : programs)
			names += " " + name;
		fail(USAGE, "expected one of%s", names.c_str());
	}
	for (int i = 2; i < argc; i++)
		params.add(argv[i]);
	start(params.number("workers", 1), [&] {
		program->second();
		params.all_used();
	});
	output += "done\n";
	if (fputs(output.c_str(), stdout) == EOF || fflush(stdout) == EOF)
		fail(FAILED, "writing the figures: %m");
	return 0;
}

// Times so many operations, `samples` times after one for warm-up.
template <class Operations>
void timed(long samples, long count, Operations operations)
{
	for (long sample = 0; sample <= samples; sample++) {
		double begin = now_ns();

		operations();
		double each = (now_ns() - begin) / count;
		if (sample > 0)
			figure("ns", each);
	}
}

// `fib`, by a function that computes Fibonacci's number with such an index. `check` is told before of
// how many threads that makes.
template <class Fib, class Check>
void fibonacci_by(Fib fib, Check check)
{
	long samples = params.number("samples", 1), n = params.number("n", 30);
	long expected = 0, next = 1;

	for (long i = 0; i < n; i++) {
		long sum = expected + next;
		expected = next;
		next = sum;
	}
	// A thread for each sum.
	check(next - 1);
	timed(samples, 1, [&] { right(fib(black_box(n)), expected); });
}

// `sumtime`, by a function that adds up the numbers from 1 to such a number.
template <class Sum>
void sumtime_by(Sum sum)
{
	long samples = params.number("samples", 3), n = params.number("n", 2000);

	timed(samples, 1, [&] { right(sum(black_box(n)), n * (n + 1) / 2); });
}

// The bytes that a file of /proc names in KiB.
inline long bytes_of(const char *path, const char *key)
{
	FILE *file = fopen(path, "r");
	char line[200];
	long kib = -1;
	std::string format = std::string(key) + " %ld kB";

	while (file && kib < 0 && fgets(line, sizeof line, file))
		if (sscanf(line, format.c_str(), &kib) != 1)
			kib = -1;
	if (kib < 0)
		fail(FAILED, "%s: there is no %s", path, key);
	fclose(file);
	return kib * 1024;
}

// Bytes of this process that are in memory.
inline long resident_memory()
{
	return bytes_of("/proc/self/smaps_rollup", "Rss:");
}

} // namespace peer
