/* Calls that few programs make: clone without what a thread needs, the word that a thread's end
 * clears, and a robust list that is not there when the thread ends. */
#include "case.h"
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void *same_word(void *unused)
{
    int *word = NULL;
    if (prctl(PR_GET_TID_ADDRESS, &word) != 0 || word == NULL)
        return "no address";
    if (syscall(SYS_set_tid_address, word) != syscall(SYS_gettid))
        return "another id";
    return unused;
}

static void *bad_list(void *unused)
{
    /* libc blocks every signal, faults included, before the thread ends. */
    if (syscall(SYS_set_robust_list, (void *)8, 24) != 0)
        return "refused";
    return unused;
}

int main(void)
{
    char *wrong = join(start(same_word, NULL));
    check("tid_address", wrong == NULL, "%s", wrong);
    wrong = join(start(bad_list, NULL));
    check("robust_list_not_mapped", wrong == NULL, "%s", wrong);
    static char stack[65536];
    errno = 0;
    long id = syscall(SYS_clone, CLONE_THREAD | CLONE_VM, stack + sizeof stack, NULL, NULL, NULL);
    check("clone_without_sighand", id == -1 && errno == EINVAL, "%ld, errno %d", id, errno);
    return verdict();
}
