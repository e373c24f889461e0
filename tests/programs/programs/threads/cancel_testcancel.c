/* pthread_testcancel acts on a pending request, a disabled state holds it back. */
#include "case.h"
#include <stdatomic.h>

static atomic_int running, release;
static int passed_disabled;

static void *tester(void *unused)
{
    (void)unused;
    atomic_store(&running, 1);
    for (;;) {
        pthread_testcancel();
        sched_yield();
    }
    return NULL;
}

static void *holder(void *unused)
{
    (void)unused;
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    atomic_store(&running, 1);
    while (!atomic_load(&release))
        usleep(1000);
    pthread_testcancel();
    passed_disabled = 1;
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    pthread_testcancel();
    return NULL;
}

int main(void)
{
    pthread_t thread = start(tester, NULL);
    while (!atomic_load(&running))
        sched_yield();
    pthread_cancel(thread);
    void *result = join(thread);
    check("cancel_testcancel", result == PTHREAD_CANCELED, "joined %p", result);

    atomic_store(&running, 0);
    thread = start(holder, NULL);
    while (!atomic_load(&running))
        sched_yield();
    pthread_cancel(thread);
    atomic_store(&release, 1);
    result = join(thread);
    check("cancel_disabled", result == PTHREAD_CANCELED && passed_disabled,
          "joined %p, passed while disabled: %d", result, passed_disabled);
    return verdict();
}
