/* What futex(2) answers to right and wrong requests. */
#include "answers.h"
#include <linux/futex.h>

#ifndef FUTEX_LOCK_PI2
#define FUTEX_LOCK_PI2 13
#endif

static void ask(void)
{
    /* Apart: some operations below would write into the next one. */
    static struct {
        int word, apart[64], other, end[64];
    } words;
#define word words.word
#define other words.other
    static const int private = FUTEX_PRIVATE_FLAG;
    word = other = 0;
    for (int shared = 0; shared < 2; shared++) {
        int flag = shared ? 0 : private;
        printf("%s: %s\n", stage, shared ? "shared" : "private");
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT | flag, 1, NULL));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT | flag, 0, &none));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT | flag, 0, &soon));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT | flag, 0, &negative));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT | flag, 0, &too_large));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT | flag, 1, &too_large));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT | flag, 0, NOWHERE));
        ASK(syscall(SYS_futex, (char *)&word + 1, FUTEX_WAIT | flag, 0, &none));
        ASK(syscall(SYS_futex, NULL, FUTEX_WAIT | flag, 0, &none));
        ASK(syscall(SYS_futex, (void *)0x1000, FUTEX_WAIT | flag, 0, &none));
        ASK(syscall(SYS_futex, (void *)-4096, FUTEX_WAIT | flag, 0, &none));
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE | flag, 1));
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE | flag, 0));
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE | flag, -1));
        ASK(syscall(SYS_futex, (char *)&word + 2, FUTEX_WAKE | flag, 1));
        ASK(syscall(SYS_futex, (void *)0x1000, FUTEX_WAKE | flag, 1));
        ASK(syscall(SYS_futex, (void *)-4096, FUTEX_WAKE | flag, 1));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | flag, 0, &none, NULL, 0));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | flag, 0, &none, NULL, 1));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME | flag, 0, &none, NULL, 1));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT | FUTEX_CLOCK_REALTIME | flag, 0, &soon));
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME | flag, 1));
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE_BITSET | flag, 1, NULL, NULL, 0));
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE_BITSET | flag, 1, NULL, NULL, 1));
        ASK(syscall(SYS_futex, &word, FUTEX_REQUEUE | flag, 1, 1L, &other));
        ASK(syscall(SYS_futex, &word, FUTEX_REQUEUE | flag, -1, 1L, &other));
        ASK(syscall(SYS_futex, &word, FUTEX_REQUEUE | flag, 1, -1L, &other));
        ASK(syscall(SYS_futex, &word, FUTEX_REQUEUE | flag, 1, 1L, (char *)&other + 1));
        ASK(syscall(SYS_futex, &word, FUTEX_REQUEUE | flag, 1, 1L, NULL));
        ASK(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE | flag, 1, 1L, &other, 0));
        ASK(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE | flag, 1, 1L, &other, 1));
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE_OP | flag, 1, 1L, &other, FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0)));
        ASK((long)other);
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE_OP | flag, 1, 1L, &other, FUTEX_OP(FUTEX_OP_ANDN, 1, FUTEX_OP_CMP_EQ, 0)));
        ASK((long)other);
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE_OP | flag, 1, 1L, &other, FUTEX_OP((FUTEX_OP_OPARG_SHIFT | FUTEX_OP_OR), 4, FUTEX_OP_CMP_GE, 0)));
        ASK((long)other);
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE_OP | flag, 1, 1L, &other, FUTEX_OP(7, 5, FUTEX_OP_CMP_EQ, 0)));
        ASK((long)other);
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE_OP | flag, 1, 1L, (char *)&other + 1, 0));
        ASK(syscall(SYS_futex, &word, FUTEX_WAKE_OP | flag, 1, 1L, NULL, 0));
        other = 0;
        ASK(syscall(SYS_futex, &word, FUTEX_TRYLOCK_PI | flag));
        ASK((long)(word == syscall(SYS_gettid)));
        ASK(syscall(SYS_futex, &word, FUTEX_TRYLOCK_PI | flag));
        ASK(syscall(SYS_futex, &word, FUTEX_LOCK_PI | flag, 0, NULL));
        ASK(syscall(SYS_futex, &word, FUTEX_UNLOCK_PI | flag));
        ASK((long)word);
        ASK(syscall(SYS_futex, &word, FUTEX_UNLOCK_PI | flag));
        ASK(syscall(SYS_futex, &word, FUTEX_LOCK_PI | flag, 0, &too_large));
        ASK(syscall(SYS_futex, &word, FUTEX_LOCK_PI2 | flag, 0, NULL));
        ASK(syscall(SYS_futex, &word, FUTEX_UNLOCK_PI | flag));
        ASK(syscall(SYS_futex, NULL, FUTEX_LOCK_PI | flag, 0, NULL));
        ASK(syscall(SYS_futex, (char *)&word + 1, FUTEX_LOCK_PI | flag, 0, NULL));
        word = NO_ID;
        ASK(syscall(SYS_futex, &word, FUTEX_LOCK_PI | flag, 0, &none));
        ASK(syscall(SYS_futex, &word, FUTEX_TRYLOCK_PI | flag));
        word = 0;
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT_REQUEUE_PI | flag, 0, &none, &other));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT_REQUEUE_PI | flag, 1, &none, &other));
        ASK(syscall(SYS_futex, &word, FUTEX_WAIT_REQUEUE_PI | flag, 0, &none, &word));
        ASK(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE_PI | flag, 1, 1L, &other, 0));
        ASK(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE_PI | flag, 2, 1L, &other, 0));
        ASK(syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE_PI | flag, 1, 1L, &other, 1));
        ASK(syscall(SYS_futex, &word, 2 | flag, 1));
        ASK(syscall(SYS_futex, &word, 77 | flag, 1));
    }
}
