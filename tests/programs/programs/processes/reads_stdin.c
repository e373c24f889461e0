/* Reads stdin to its end in a thread and tells how many bytes there were, or why there are none. */
#include "case.h"

static void *body(void *unused)
{
    char buffer[4096];
    long total = 0;
    ssize_t got;
    while ((got = read(0, buffer, sizeof buffer)) > 0)
        total += got;
    printf("%ld bytes, then %zd, errno %d\n", total, got, got < 0 ? errno : 0);
    return unused;
}

int main(void)
{
    join(start(body, NULL));
    return 5;
}
