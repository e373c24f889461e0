/* errno, thread-locals, thread-specific data, locale and pthread_self of 10,000 threads, across
 * yields, sleeps and migration. */
#include "case.h"
#include <ctype.h>
#include <locale.h>
#include <stdatomic.h>

#define THREADS 10000
static _Thread_local long small = 7;
static _Thread_local char large[64];
static pthread_key_t key;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static locale_t own_locale;
static atomic_long destroyed, wrong_errno, wrong_tls, wrong_key, wrong_self, wrong_locale, wrong_heap;

static void destroy(void *unused)
{
    (void)unused;
    atomic_fetch_add(&destroyed, 1);
}

static void *body(void *number)
{
    long id = (long)number;
    int mine = (int)(1000 + id % 1000);
    char *blocks[10];
    pthread_t self = pthread_self();
    if (small != 7 || large[0] != 0)
        atomic_fetch_add(&wrong_tls, 1);
    small = id;
    large[63] = (char)id;
    pthread_setspecific(key, (void *)(id + 1));
    locale_t wanted = id & 1 ? own_locale : LC_GLOBAL_LOCALE;
    uselocale(wanted);
    for (int turn = 0; turn < 10; turn++) {
        blocks[turn] = malloc(64 + (id * 7 + turn) % 500);
        memset(blocks[turn], (int)(id & 255), 64);
        errno = mine;
        if (turn & 1) {
            sched_yield();
        } else if (turn == 4) {
            usleep(100);
            errno = mine;
            sched_yield();
        } else {
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
        }
        atomic_fetch_add(&wrong_errno, errno != mine);
        atomic_fetch_add(&wrong_tls, small != id || large[63] != (char)id);
        atomic_fetch_add(&wrong_key, (long)pthread_getspecific(key) != id + 1);
        atomic_fetch_add(&wrong_self, pthread_self() != self);
        atomic_fetch_add(&wrong_locale, uselocale(0) != wanted || !isalpha('a'));
    }
    for (int turn = 0; turn < 10; turn++) {
        atomic_fetch_add(&wrong_heap, (unsigned char)blocks[turn][63] != (id & 255));
        free(blocks[turn]);
    }
    errno = 0;
    if (close(-1) != -1 || errno != EBADF)
        atomic_fetch_add(&wrong_errno, 1);
    return (void *)(id * 3);
}

int main(void)
{
    static pthread_t threads[THREADS];
    pthread_attr_t attributes;
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstacksize(&attributes, 64 << 10));
    MUST(pthread_key_create(&key, destroy));
    own_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    long wrong_result = 0;
    /* In batches, so that the native run stays below the machine's limit on kernel threads. */
    for (long first = 0; first < THREADS; first += 1000) {
        for (long i = first; i < first + 1000; i++)
            MUST(pthread_create(&threads[i], &attributes, body, (void *)i));
        for (long i = first; i < first + 1000; i++)
            wrong_result += (long)join(threads[i]) != i * 3;
    }
    check("results_10000", wrong_result == 0, "%ld", wrong_result);
    check("errno_10000", wrong_errno == 0, "%ld", wrong_errno);
    check("thread_local_10000", wrong_tls == 0, "%ld", wrong_tls);
    check("specific_10000", wrong_key == 0 && destroyed == THREADS, "%ld, %ld destroyed", wrong_key,
          destroyed);
    check("self_10000", wrong_self == 0, "%ld", wrong_self);
    check("locale_10000", wrong_locale == 0, "%ld", wrong_locale);
    check("heap_10000", wrong_heap == 0, "%ld", wrong_heap);
    return verdict();
}
