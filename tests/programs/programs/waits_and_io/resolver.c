/* getaddrinfo and iconv from many threads: libraries are loaded and caches filled under them. */
#include "case.h"
#include <iconv.h>
#include <netdb.h>
#include <stdatomic.h>

static atomic_int resolved, converted;

static void *resolve(void *unused)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    if (getaddrinfo("localhost", "80", &hints, &list) == 0) {
        atomic_fetch_add(&resolved, 1);
        freeaddrinfo(list);
    }
    return unused;
}

static void *convert(void *unused)
{
    iconv_t converter = iconv_open("UTF-16LE", "ISO-8859-15");
    char in[] = "\xa4 uro", out[32];
    char *from = in, *to = out;
    size_t in_left = 5, out_left = sizeof out;
    if (converter != (iconv_t)-1) {
        if (iconv(converter, &from, &in_left, &to, &out_left) == 0 && in_left == 0 &&
            (unsigned char)out[0] == 0xac && out[1] == 0x20)
            atomic_fetch_add(&converted, 1);
        iconv_close(converter);
    }
    return unused;
}

static void run(void *(*body)(void *))
{
    pthread_t threads[20];
    for (int i = 0; i < 20; i++)
        threads[i] = start(body, NULL);
    for (int i = 0; i < 20; i++)
        join(threads[i]);
}

int main(void)
{
    run(resolve);
    check("getaddrinfo", resolved == 20, "%d of 20", resolved);
    run(convert);
    check("iconv", converted == 20, "%d of 20", converted);
    return verdict();
}
