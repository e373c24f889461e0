// What State Threads do with descriptors: pipes, and a web server with a thread for each connection.
//
// The other ends of idle connections are in processes of upcall-workload (client=PATH).
#pragma once

#include <algorithm>
#include <cctype>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "st.hpp"

namespace peer {

inline st_netfd_t netfd(int fd)
{
	return checked(st_netfd_open(fd), "st_netfd_open");
}

// A pipe in whose calls a thread waits.
struct Pipe {
	st_netfd_t reader, writer;

	Pipe()
	{
		int ends[2];

		if (pipe2(ends, O_CLOEXEC))
			fail(FAILED, "pipe: %m");
		reader = netfd(ends[0]);
		writer = netfd(ends[1]);
	}

	~Pipe()
	{
		st_netfd_close(reader);
		st_netfd_close(writer);
	}

	void read()
	{
		char byte;

		if (st_read(reader, &byte, 1, ST_UTIME_NO_TIMEOUT) != 1)
			fail(FAILED, "reading from a pipe: %m");
	}

	void write()
	{
		if (st_write(writer, "x", 1, ST_UTIME_NO_TIMEOUT) != 1)
			fail(FAILED, "writing to a pipe: %m");
	}
};

inline void pipe_exchange()
{
	long samples = params.number("samples", 5), operations = params.number("operations", 5000);

	timed(samples, operations, [&] {
		Pipe there, back;
		auto first = [&] {
			for (long i = 0; i < operations; i++) {
				there.write();
				back.read();
			}
		};
		auto second = [&] {
			for (long i = 0; i < operations; i++) {
				there.read();
				back.write();
			}
		};
		auto one = St::spawn(first), other = St::spawn(second);
		St::join(one);
		St::join(other);
	});
}

// How long the request at the front is: 0 if it is not there to its end, -1 if it is none.
inline long request(const char *bytes, size_t length)
{
	auto end = static_cast<const char *>(memmem(bytes, length, "\r\n\r\n", 4));
	if (!end)
		return 0;
	std::string_view head(bytes, end - bytes + 2);
	size_t line = head.find("\r\n");
	size_t target = head.find(' '), version = head.rfind(' ', line);
	if (target == 0 || target >= version || version > line || head.substr(version + 1, 7) != "HTTP/1.")
		return -1;
	for (line += 2; line < head.size(); line = head.find("\r\n", line) + 2) {
		size_t name = line;
		while (isalnum((unsigned char)head[name]) || (head[name] && strchr("!#$%&'*+-.^_`|~", head[name])))
			name++;
		if (name == line || head[name] != ':')
			return -1;
	}
	return head.size() + 2;
}

// Answers requests without a body to the connection's end.
inline void *connection(void *argument)
{
	static const char BODY[] = "Hello, world!\n";
	auto socket = static_cast<st_netfd_t>(argument);
	std::vector<char> input(512);
	std::string output;
	size_t filled = 0;

	for (;;) {
		if (filled == input.size())
			input.resize(2 * filled);
		ssize_t got = st_read(socket, &input[filled], input.size() - filled, ST_UTIME_NO_TIMEOUT);
		if (got <= 0)
			break;
		filled += got;
		size_t done = 0;
		long length;
		while ((length = request(&input[done], filled - done)) > 0) {
			char head[200], date[40];
			time_t now = time(nullptr);
			tm parts;

			done += length;
			strftime(date, sizeof date, "%a, %d %b %Y %T GMT", gmtime_r(&now, &parts));
			snprintf(head, sizeof head,
				 "HTTP/1.1 200 OK\r\nDate: %s\r\nContent-Type: text/plain; charset=utf-8\r\n"
				 "Content-Length: %zu\r\n\r\n",
				 date, strlen(BODY));
			output += head;
			output += BODY;
		}
		filled -= done;
		memmove(&input[0], &input[done], filled);
		ssize_t size = output.size();
		if (length < 0 || st_write(socket, output.data(), size, ST_UTIME_NO_TIMEOUT) != size)
			break;
		output.clear();
	}
	st_netfd_close(socket);
	return nullptr;
}

inline void *accepts(void *listener)
{
	for (;;) {
		st_netfd_t socket =
			st_accept(static_cast<st_netfd_t>(listener), nullptr, nullptr, ST_UTIME_NO_TIMEOUT);
		int on = 1;
		setsockopt(st_netfd_fileno(checked(socket, "st_accept")), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
		checked(st_thread_create(connection, socket, false, 0), "a thread for a connection");
	}
}

// Starts the server at any port of the loopback interface.
inline int serve()
{
	sockaddr_in address = {};
	socklen_t length = sizeof address;
	auto place = reinterpret_cast<sockaddr *>(&address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_family = AF_INET;
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, place, length) || listen(fd, 1024) || getsockname(fd, place, &length))
		fail(FAILED, "the server: %m");
	st_netfd_t listener = checked(st_netfd_open_socket(fd), "st_netfd_open_socket");
	checked(st_thread_create(accepts, listener, false, 0), "the thread that accepts");
	return ntohs(address.sin_port);
}

// Another process, with pipes to it.
class Process {
	pid_t pid;
	st_netfd_t input, output;
	std::string said;

	// Reads what it says next; false at the end.
	bool read_more()
	{
		char bytes[1000];
		ssize_t got = st_read(output, bytes, sizeof bytes, ST_UTIME_NO_TIMEOUT);

		said.append(bytes, std::max<ssize_t>(got, 0));
		return got > 0;
	}

public:
	Process(std::vector<std::string> words, const char *if_missing)
	{
		std::vector<char *> arguments;
		posix_spawn_file_actions_t actions;
		int in[2], out[2];

		for (auto &word : words)
			arguments.push_back(word.data());
		arguments.push_back(nullptr);
		if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
			fail(FAILED, "pipe: %m");
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_adddup2(&actions, in[0], 0);
		posix_spawn_file_actions_adddup2(&actions, out[1], 1);
		int error = posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
		posix_spawn_file_actions_destroy(&actions);
		if (error == ENOENT)
			fail(SKIP, "%s", if_missing);
		if (error)
			fail(FAILED, "%s: %s", arguments[0], strerror(error));
		close(in[0]);
		close(out[1]);
		input = netfd(in[1]);
		output = netfd(out[0]);
	}

	void says(const std::string &line)
	{
		while (said.find('\n') == said.npos && read_more())
			;
		if (said.compare(0, line.size() + 1, line + "\n"))
			fail(FAILED, "the client says %s", said.c_str());
		said.erase(0, line.size() + 1);
	}

	void close_input()
	{
		st_netfd_close(input);
	}

	// All that it says to its end; fails if it has failed.
	std::string rest()
	{
		int status;

		while (read_more())
			;
		st_netfd_close(output);
		if (waitpid(pid, &status, 0) != pid || status)
			fail(FAILED, "another process failed, after %s", said.c_str());
		return said;
	}
};

inline void http()
{
	std::string connections = std::to_string(params.number("connections", 64));
	std::string seconds = std::to_string(params.number("seconds", 2));
	std::string url = "http://127.0.0.1:" + std::to_string(serve()) + "/";
	Process wrk({ "wrk", "-t1", "-c" + connections, "-d" + seconds, url }, "wrk is not installed");
	std::string said = wrk.rest(), key = "Requests/sec:";
	size_t rate = said.find(key);

	if (rate == said.npos || said.find("Socket errors") != said.npos || said.find("Non-2xx") != said.npos)
		fail(FAILED, "wrk says: %s", said.c_str());
	figure("requests/s", atof(said.c_str() + rate + key.size()));
}

// Descriptors that are not connections.
constexpr long OTHERS = 200;

// Raises the limit of descriptors to what idle_connections needs; beyond the hard limit takes a
// privilege.
inline void allow_descriptors()
{
	long count = params.number("connections", 10000);
	rlim_t needed = count + OTHERS;
	rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur >= needed)
		return;
	rlimit most = { needed, std::max(needed, limit.rlim_max) };
	if (setrlimit(RLIMIT_NOFILE, &most))
		fail(SKIP, "RLIMIT_NOFILE allows %lu descriptors, too few for %ld connections",
		     (unsigned long)limit.rlim_max, count);
}

// Declines if the package allows fewer, as those do that wait by select(2); 0 is no limit.
inline void enough_descriptors(long allowed)
{
	long count = params.number("connections", 10000);

	if (allowed && allowed < count + OTHERS)
		fail(SKIP, "State Threads of this machine have at most %ld descriptors, too few for %ld connections",
		     allowed, count);
}

// So many connections, each of which waits for its first request.
inline void idle_connections()
{
	long count = params.number("connections", 10000);
	std::string program = params.text("client"), port = "port=" + std::to_string(serve());
	auto client = [&](long first, long count) {
		std::string from = "first=" + std::to_string(first);
		std::string connections = "connections=" + std::to_string(count);
		return Process({ program, "idle_client", port, from, connections }, "client= names no program");
	};
	// What the first connection needs is there before.
	Process warm = client(0, 1);
	warm.says("ready");
	long before = resident_memory(), bytes, last;
	Process others = client(0, count);
	others.says("ready");
	// Until memory does not grow any more: all threads wait.
	bytes = resident_memory();
	do {
		last = bytes;
		st_usleep(200000);
		bytes = resident_memory();
	} while (bytes > last);
	long tasks = 0;
	for (auto &task : std::filesystem::directory_iterator("/proc/self/task"))
		tasks += task.exists();
	for (Process *each : { &others, &warm }) {
		each->close_input();
		each->says("done");
		each->rest();
	}
	figure("bytes", (double)std::max(bytes - before, 0L) / count);
	figure("kernel_threads", tasks);
}

} // namespace peer
