// The workloads with State Threads.
#include <cstring>

#include <signal.h>

#include "load.hpp"
#include "st.hpp"
#include "threads.hpp"

using namespace peer;

int main(int argc, char **argv)
{
	const Programs servers = { { "http", http }, { "idle_connections", idle_connections } };
	Programs programs = common<St>();
	const char *name = argc > 1 ? argv[1] : "";

	programs.insert({ "pipe_exchange", pipe_exchange });
	programs.insert(servers.begin(), servers.end());
	return peer::main(argc, argv, programs, [&](long workers, auto job) {
		// The load on a server may use the other processors.
		if (workers > 1 && !servers.count(name))
			fail(SKIP, "State Threads have one worker, and not %ld", workers);
		signal(SIGPIPE, SIG_IGN);
		// The library asks for the limit once.
		if (!strcmp(name, "idle_connections"))
			allow_descriptors();
		if (st_set_eventsys(ST_EVENTSYS_ALT) || st_init())
			fail(FAILED, "starting State Threads: %m");
		if (!strcmp(name, "idle_connections"))
			enough_descriptors(st_getfdlimit());
		job();
	});
}
