/* A process whose first thread has made reading the time stamp counter a fault (PR_SET_TSC) has threads, which have that,
 * too. */
#include "case.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>

static _Thread_local sigjmp_buf before;

static void faults(int signal)
{
    (void)signal;
    siglongjmp(before, 1);
}

static void *body(void *unused)
{
    int is_set = 0;
    MUST(prctl(PR_GET_TSC, &is_set));
    if (sigsetjmp(before, 1) == 0) {
        __builtin_ia32_rdtsc();
        return "read";
    }
    usleep(1000);
    return is_set == PR_TSC_SIGSEGV ? unused : "not set";
}

int main(void)
{
    struct sigaction action = {.sa_handler = faults};
    MUST(sigaction(SIGSEGV, &action, NULL));
    MUST(prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
    for (int i = 0; i < 3; i++) {
        const char *wrong = join(start(body, NULL));
        check("time_stamps_fault", wrong == NULL, "%s", wrong);
    }
    return verdict();
}
