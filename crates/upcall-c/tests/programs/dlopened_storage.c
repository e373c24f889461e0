/* Thread-local storage of a library that was loaded before the first thread is new in each thread, whichever touched it. */
#include <dlfcn.h>

#include "check.h"

static char *(*text)(void);

static void *touches(void *fresh)
{
    CHECK(strcmp(text(), "fresh") == 0);
    strcpy(text(), "used");
    return fresh;
}

int main(int count, char **arguments)
{
    start_as_told();
    CHECK(count == 2);
    void *plugin = dlopen(arguments[1], RTLD_NOW);
    CHECK(plugin);
    *(void **)&text = dlsym(plugin, "plugin_text");
    strcpy(text(), "the first thread's");
    for (int i = 0; i < 100; i++) {
        upcall_thread_t threads[3];
        for (int k = 0; k < 3; k++)
            OK(upcall_thread_create(&threads[k], NULL, touches, NULL));
        for (int k = 0; k < 3; k++)
            OK(upcall_thread_join(threads[k], NULL));
    }
    CHECK(strcmp(text(), "the first thread's") == 0);
    puts("ok");
    return 0;
}
