/* Libraries are loaded by a thread with the smallest legal stack. A library's path is the argument. */
#include "case.h"
#include <dlfcn.h>
#include <limits.h>

static void *body(void *path)
{
    long loaded = 0;
    for (int i = 0; i < 3; i++) {
        void *library = dlopen(path, RTLD_NOW);
        loaded += library != NULL && dlclose(library) == 0;
    }
    return (void *)loaded;
}

int main(int count, char **words)
{
    pthread_attr_t attributes;
    pthread_t thread;
    void *loaded;
    MUST(count != 2);
    MUST(pthread_attr_init(&attributes));
    MUST(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
    MUST(pthread_create(&thread, &attributes, body, words[1]));
    MUST(pthread_join(thread, &loaded));
    check("loaded", (long)loaded == 3, "%ld", (long)loaded);
    return verdict();
}
