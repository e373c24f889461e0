/* A child whose standard error its parent reads. */
#ifndef SAID_H
#define SAID_H
#include "case.h"
#include <poll.h>
#include <sys/types.h>

/* Starts the child, which does `body` and ends. The parent reads what it says from the descriptor at `from`. */
static pid_t start_said(void (*body)(int), int argument, int *from)
{
    int pipes[2];
    MUST(pipe(pipes));
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        body(argument);
        _exit(7);
    }
    close(pipes[1]);
    *from = pipes[0];
    return child;
}

/* Returns 1 when all words were said, which end with NULL; 0 when nothing was and nobody can say anything any more; -1
 * otherwise, also when nothing has been said for so long, in milliseconds. */
static int says_all(int from, const char *const *words, int patience)
{
    static char said[1 << 16];
    size_t length = 0;
    struct pollfd event = {.fd = from, .events = POLLIN};
    while (poll(&event, 1, patience) == 1) {
        ssize_t more = read(from, said + length, sizeof said - 1 - length);
        if (more <= 0 && length == 0)
            return 0;
        if (more <= 0)
            break;
        length += (size_t)more;
        said[length] = 0;
        size_t at = 0;
        while (words[at] != NULL && strstr(said, words[at]) != NULL)
            at++;
        if (words[at] == NULL)
            return 1;
    }
    if (patience < 0)
        fprintf(stderr, "%s", said);
    return -1;
}

#endif
