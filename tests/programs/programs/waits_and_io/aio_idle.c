/* A process without threads of its own, the child of a fork, outlives libc's helper, which ends after
 * a second without work. */
#include "case.h"
#include <aio.h>
#include <fcntl.h>
#include <sys/wait.h>

static int child(void)
{
    char byte;
    struct aiocb request = {.aio_fildes = open("/dev/zero", O_RDONLY), .aio_buf = &byte, .aio_nbytes = 1};
    MUST(aio_read(&request));
    while (aio_error(&request) == EINPROGRESS)
        settle();
    for (int i = 0; i < 75; i++)
        settle();
    return aio_return(&request) == 1 ? 7 : 1;
}

int main(void)
{
    pid_t made = fork();
    if (made == 0)
        _exit(child());
    int status = 0;
    waitpid(made, &status, 0);
    check("aio_idle", WIFEXITED(status) && WEXITSTATUS(status) == 7, "status %x", status);
    return verdict();
}
