// An exception that leaves a thread's function, with nobody to get it, ends the process: std::terminate.
#include <upcall.hpp>

#include "check.h"

static void *throws(void *) { throw std::runtime_error("nobody's"); }

int main(int count, char **)
{
    start_as_told();
    std::set_terminate([] {
        puts("terminated");
        fflush(stdout);
        _Exit(7);
    });
    if (count > 1) {
        upcall_thread_t thread;
        OK(upcall_thread_create(&thread, nullptr, throws, nullptr));
        upcall_thread_join(thread, nullptr);
    } else {
        upcall::spawn_detached([] { throw 1; });
        upcall_thread_sleep(20000 * MS);
    }
    return 1;
}
