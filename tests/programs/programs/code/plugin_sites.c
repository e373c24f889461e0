/* A library with system-call instructions of its own, which others load: waiting and waking. Its
 * constructor makes one. */
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>

#ifndef own
static long own(long number, long a, long b, long c, long d)
{
    register long fourth __asm__("r10") = d;
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return answer;
}
#endif

static long from_constructor;

__attribute__((constructor)) static void begin(void) { from_constructor = own(SYS_gettid, 0, 0, 0, 0); }

long plugin_constructor(void) { return from_constructor; }
long plugin_gettid(void) { return own(SYS_gettid, 0, 0, 0, 0); }

/* Until the word is not `value` any more. */
void plugin_wait(unsigned *word, unsigned value)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value)
        own(SYS_futex, (long)word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, 0);
}

long plugin_wake(unsigned *word, int count)
{
    return own(SYS_futex, (long)word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, count, 0);
}

long plugin_sleep(long nanoseconds)
{
    long time[2] = {0, nanoseconds};
    return own(SYS_nanosleep, (long)time, 0, 0, 0);
}
