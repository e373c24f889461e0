/* Threads write to stdout until a closed pipe ends the program, or, with SIGPIPE ignored, until
 * the error comes and the exit status tells it. */
#include "case.h"

static void *body(void *unused)
{
    static const char line[] = "another line of output\n";
    for (;;)
        if (write(1, line, sizeof line - 1) < 0)
            _exit(errno == EPIPE ? 42 : 43);
    return unused;
}

int main(void)
{
    for (int i = 0; i < 3; i++)
        start(body, NULL);
    body(NULL);
}
