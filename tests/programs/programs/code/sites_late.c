/* Before the first thread the code of a call that only threads need is as it was; after it the call is rewritten. With no
 * argument nothing is ever rewritten, as natively. */
#include "case.h"
#include <sys/socket.h>

/* A function that only makes its call. */
static int is_as_it_was(void)
{
    const unsigned char *code = (const unsigned char *)(void *)&listen;
    for (int i = 0; i < 24; i++)
        if (code[i] == 0x0f && code[i + 1] == 0x05)
            return 1;
    return 0;
}

static void *nothing(void *unused) { return unused; }

int main(int count, char **words)
{
    (void)words;
    int before = is_as_it_was();
    join(start(nothing, NULL));
    int after = is_as_it_was();
    check("sites_late", before && after == (count == 1), "%d before, %d after", before, after);
    check("sites_late serve", listen(-1, 1) == -1 && errno == EBADF, "%d", errno);
    return 0;
}
