/* A file that dup2 puts at a free number stays there, whatever a runtime opens meanwhile. Shells redirect so. In each child
 * the runtime starts anew, and looks for the first time at what its threads do. */
#include "case.h"
#include <fcntl.h>
#include <sys/wait.h>

static void *waits(void *unused)
{
    for (;;)
        pause();
    return unused;
}

/* Returns how often the number was not the file's. */
static int replaces(void)
{
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        MUST(pthread_create(&thread, NULL, waits, NULL));
    int from = open("/dev/null", O_RDWR), number = open("/dev/null", O_RDWR);
    int lost = 0;
    for (int round = 0; round < 300; round++) {
        close(number);
        if (dup2(from, number) != number)
            lost++;
        for (int look = 0; look < 3; look++)
            lost += fcntl(number, F_GETFD) == -1;
    }
    return lost;
}

int main(void)
{
    int lost = 0;
    for (int round = 0; round < 400; round++) {
        pid_t child = fork();
        if (child == 0)
            _exit(replaces() != 0);
        int status = 0;
        waitpid(child, &status, 0);
        lost += status != 0;
    }
    check("descriptors_replaced_stay", lost == 0, "not in %d processes", lost);
    return verdict();
}
