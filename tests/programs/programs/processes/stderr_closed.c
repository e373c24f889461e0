/* Closes everything but standard output before it ends, as programs do that check their last write. */
#include "case.h"
#include <fcntl.h>

static void *nothing(void *argument) { return argument; }

int main(void)
{
    pthread_t thread;
    check("created", pthread_create(&thread, NULL, nothing, NULL) == 0, "%d", errno);
    pthread_join(thread, NULL);
    close_range(2, ~0u, 0);
    check("closed", fcntl(2, F_GETFD) == -1, "open");
    return verdict();
}
