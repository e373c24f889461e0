/* A thread with a kernel thread of its own takes back the word that its end clears, and sets it again, as stress-ng does:
 * it finds libc's word, and whoever joins it does not wait for ever. */
#include "case.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void *sets_again(void *is_bound)
{
    int *word = NULL;
    pid_t own = (pid_t)syscall(SYS_gettid);
    if (is_bound != NULL)
        MUST(setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1));
    MUST(prctl(PR_GET_TID_ADDRESS, &word, 0, 0, 0));
    /* It is the id up to glibc 2.42. */
    long holds = word != NULL && *word != 0;
    MUST(syscall(SYS_set_tid_address, NULL) != own);
    int *none = &case_failures;
    MUST(prctl(PR_GET_TID_ADDRESS, &none, 0, 0, 0));
    holds &= none == NULL;
    MUST(syscall(SYS_set_tid_address, word) != own);
    return (void *)holds;
}

int main(void)
{
    int *before = NULL, *after = NULL;
    MUST(prctl(PR_GET_TID_ADDRESS, &before, 0, 0, 0));
    check("cleared_word_of_ordinary", join(start(sets_again, NULL)) != NULL, "another word");
    check("cleared_word_of_bound", join(start(sets_again, "bound")) != NULL, "another word");
    MUST(prctl(PR_GET_TID_ADDRESS, &after, 0, 0, 0));
    check("cleared_word_of_first", before != NULL && after == before, "another word");
    return verdict();
}
