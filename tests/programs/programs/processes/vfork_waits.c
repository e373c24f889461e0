/* A child of vfork, on its parent's memory, waits for a word that another thread sets and wakes by,
 * and wakes a thread that waits. */
#include "case.h"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static unsigned told, answered;

static void wait_for(unsigned *word)
{
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0)
        syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, NULL, NULL, 0);
}

static void set(unsigned *word)
{
    __atomic_store_n(word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

static void *other(void *unused)
{
    settle();
    set(&told);
    wait_for(&answered);
    return unused;
}

static void *parent(void *unused)
{
    int status = 0;
    pid_t pid = vfork();
    if (pid == 0) {
        wait_for(&told);
        usleep(20000);
        set(&answered);
        _exit(7);
    }
    check("child", waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7,
          "status %x", status);
    return unused;
}

int main(void)
{
    for (int round = 0; round < 5; round++) {
        told = answered = 0;
        pthread_t one = start(other, NULL), two = start(parent, NULL);
        join(one);
        join(two);
    }
    return verdict();
}
