/* Executes a program in which one system call is answered with an error: deny_call NUMBER ERRNO PROGRAM ARGS. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int count, char **words)
{
    if (count < 4) {
        fputs("usage: deny_call NUMBER ERRNO PROGRAM ARGS\n", stderr);
        return 2;
    }
    unsigned number = (unsigned)atoi(words[1]), error = (unsigned)atoi(words[2]);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("deny_call: no filter");
        return 3;
    }
    execv(words[3], words + 3);
    perror("deny_call: execv");
    return 4;
}
