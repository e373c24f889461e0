/* The program owns its descriptor numbers: the first free one is the lowest, closing all above 2
 * is its right, and threads, pipes and sleeps work afterwards. */
#include "case.h"
#include <fcntl.h>
#include <sys/syscall.h>

static void *body(void *ends)
{
    char byte = 0;
    usleep(1000);
    return (void *)(long)(read(((int *)ends)[0], &byte, 1) == 1 && byte == 'z');
}

static long works(void)
{
    int ends[2];
    MUST(pipe(ends));
    pthread_t thread = start(body, ends);
    settle();
    ssize_t wrote = write(ends[1], "z", 1);
    long read_it = (long)join(thread);
    close(ends[0]);
    close(ends[1]);
    return wrote == 1 && read_it;
}

int main(void)
{
    int first = open("/dev/null", O_RDONLY), second = dup(first);
    check("descriptor_lowest", first == 3 && second == 4, "%d, %d", first, second);
    close(first);
    close(second);
    check("descriptors_before", works(), "the byte did not arrive");
    for (int fd = 3; fd < 1024; fd++)
        close(fd);
    check("descriptors_after_close", works(), "the byte did not arrive");
    syscall(SYS_close_range, 3, ~0u, 0);
    check("descriptors_after_close_range", works(), "the byte did not arrive");
    return verdict();
}
