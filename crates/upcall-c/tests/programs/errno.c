/* What answers something else than an error number leaves errno alone too (ANSWERS looks at that everywhere). */
#include "check.h"

#define LEAVES(call)              \
    do {                          \
        errno = UNTOUCHED;        \
        call;                     \
        CHECK(errno == UNTOUCHED); \
    } while (0)

static upcall_key_t key;

static void *body(void *argument)
{
    upcall_thread_t self;
    char name[16];
    int class, priority;
    LEAVES(self = upcall_thread_self());
    CHECK(self);
    LEAVES((void)upcall_getspecific(key));
    OK(upcall_setspecific(key, argument));
    LEAVES(CHECK(upcall_getspecific(key) == argument));
    LEAVES((void)upcall_getspecific(999));
    LEAVES(upcall_thread_yield());
    LEAVES(upcall_critical_enter());
    LEAVES(upcall_critical_leave());
    LEAVES(upcall_critical_code(NULL, NULL));
    LEAVES(upcall_thread_sleep(1000));
    LEAVES((void)upcall_served_by());
    OK(upcall_thread_setname("a name that is longer than fifteen bytes"));
    OK(upcall_thread_getname(self, name, sizeof name));
    ANSWERS(ERANGE, upcall_thread_getname(self, name, 2));
    OK(upcall_thread_getpriority(self, &class, &priority));
    ANSWERS(EINVAL, upcall_thread_setpriority(self, 17, 0));
    errno = UNTOUCHED;
    (void)upcall_thread_setpriority(self, UPCALL_PRIORITY_REALTIME, 1);
    CHECK(errno == UNTOUCHED);
    OK(upcall_thread_unpark(self));
    OK(upcall_thread_park());
    return NULL;
}

int main(void)
{
    start_as_told();
    OK(upcall_key_create(&key, NULL));
    body(NULL);
    for (int round = 0; round < 3; round++) {
        upcall_thread_t threads[8];
        for (int i = 0; i < 8; i++)
            OK(upcall_thread_create(&threads[i], NULL, body, &key));
        for (int i = 0; i < 8; i++)
            OK(upcall_thread_join(threads[i], NULL));
        /* Not of the cheap kind. */
        struct upcall_thread_attr attr = UPCALL_THREAD_ATTR_INITIALIZER;
        attr.stack_size = 17 << 20;
        OK(upcall_thread_create(&threads[0], &attr, body, &key));
        OK(upcall_thread_join(threads[0], NULL));
        attr.stack_size = (size_t)1 << 50;
        errno = UNTOUCHED;
        CHECK(upcall_thread_create(&threads[0], &attr, body, &key) != 0);
        CHECK(errno == UNTOUCHED);
    }
    ANSWERS(EINVAL, upcall_key_delete(999));
    OK(upcall_key_delete(key));
    LEAVES((void)upcall_start(NULL));
    puts("ok");
}
