/* A library with thread-local variables is loaded while threads run: each thread gets its own,
 * with the value to start from, and keeps it. The library's path is the argument. */
#include "case.h"
#include <dlfcn.h>
#include <stdatomic.h>

static int (*get)(void);
static void (*set)(int);
static atomic_int loaded, wrong_start, wrong_later, arrived;

static void *body(void *number)
{
    int self = (int)(long)number;
    atomic_fetch_add(&arrived, 1);
    while (!atomic_load(&loaded))
        usleep(1000);
    if (get() != 4242)
        atomic_fetch_add(&wrong_start, 1);
    set(self);
    for (int i = 0; i < 50; i++) {
        sched_yield();
        if (get() != self)
            atomic_fetch_add(&wrong_later, 1);
    }
    return NULL;
}

int main(int count, char **words)
{
    pthread_t threads[20];
    for (long i = 0; i < 20; i++)
        threads[i] = start(body, (void *)i);
    while (atomic_load(&arrived) < 20)
        sched_yield();
    void *library = dlopen(count > 1 ? words[1] : "plugin_tls.so", RTLD_NOW);
    if (library == NULL) {
        printf("FAIL dlopen: %s\n", dlerror());
        return 1;
    }
    get = (int (*)(void))dlsym(library, "plugin_get");
    set = (void (*)(int))dlsym(library, "plugin_set");
    atomic_store(&loaded, 1);
    for (int i = 0; i < 20; i++)
        join(threads[i]);
    check("dlopen_tls_start", wrong_start == 0, "%d threads", wrong_start);
    check("dlopen_tls_kept", wrong_later == 0, "%d times", wrong_later);
    check("dlclose", dlclose(library) == 0, "%s", dlerror());
    return verdict();
}
