/* What a program is given by who starts it: arguments, open descriptors, ignored signals and the
 * signal mask, limits. Printed, for comparison. */
#include "case.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

int main(int count, char **words)
{
    for (int i = 0; i < count; i++)
        printf("argument %d: %s\n", i, words[i]);
    for (int fd = 0; fd < 3; fd++)
        printf("descriptor %d: %s\n", fd, fcntl(fd, F_GETFD) < 0 ? "closed" : "open");
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    for (int signal = 1; signal <= 64; signal++) {
        struct sigaction action;
        if (sigaction(signal, NULL, &action) == 0)
            printf("signal %d: %s%s\n", signal,
                   action.sa_handler == SIG_DFL   ? "default"
                   : action.sa_handler == SIG_IGN ? "ignored"
                                                  : "handled",
                   sigismember(&mask, signal) == 1 ? ", blocked" : "");
    }
    static const int limits[] = {RLIMIT_STACK, RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_AS, RLIMIT_MEMLOCK};
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit limit;
        getrlimit((__rlimit_resource_t)limits[i], &limit);
        printf("limit %d: %lu %lu\n", limits[i], limit.rlim_cur, limit.rlim_max);
    }
    printf("dumpable %d, no new privileges %d\n", prctl(PR_GET_DUMPABLE),
           prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    stack_t stack;
    sigaltstack(NULL, &stack);
    printf("alternate stack flags %d\n", stack.ss_flags);
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    printf("executable %.*s\n", (int)length, self);
    return 0;
}
