/* Threads with and without an alternate signal stack give way to each other: nobody tells the kernel
 * at each switch. A filter of the program's own reports every sigaltstack(2) to another process, which
 * counts them. */
#include "case.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { THREADS = 4, YIELDS = 25000, FEW = 200 };

static pthread_barrier_t all;

static void *gives_way(void *number)
{
    stack_t stack = {.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ}, found = {0};
    if ((long)number % 2 == 0)
        MUST(sigaltstack(&stack, NULL));
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    for (int i = 0; i < YIELDS; i++)
        sched_yield();
    sigaltstack(NULL, &found);
    return (void *)(long)(found.ss_sp == ((long)number % 2 == 0 ? stack.ss_sp : NULL));
}

static int filter(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sigaltstack, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    long flags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH |
                 SECCOMP_FILTER_FLAG_NEW_LISTENER;
    int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
    MUST(listener < 0);
    return listener;
}

/* A descriptor on its way to the process that counts, which has no filter. */
struct parcel {
    struct iovec bytes;
    struct msghdr message;
    char byte;
    _Alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))];
};

static struct msghdr *open_parcel(struct parcel *parcel)
{
    memset(parcel, 0, sizeof *parcel);
    parcel->bytes = (struct iovec){&parcel->byte, 1};
    parcel->message = (struct msghdr){.msg_iov = &parcel->bytes, .msg_iovlen = 1,
                                      .msg_control = parcel->room,
                                      .msg_controllen = sizeof parcel->room};
    return &parcel->message;
}

static void give(int end, int descriptor)
{
    struct parcel parcel;
    struct msghdr *message = open_parcel(&parcel);
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
    MUST(sendmsg(end, message, 0) != 1);
}

static int take(int end)
{
    struct parcel parcel;
    int descriptor;
    MUST(recvmsg(end, open_parcel(&parcel), 0) != 1);
    memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&parcel.message)), sizeof descriptor);
    return descriptor;
}

/* Lets each call through, until nobody is left who could make one. */
static void count(int listener)
{
    struct seccomp_notif asked;
    int made = 0;
    for (;;) {
        memset(&asked, 0, sizeof asked);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        struct seccomp_notif_resp answer = {.id = asked.id,
                                            .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
        if (++made > FEW)
            break;
    }
    /* Later ones are answered ENOSYS. */
    _exit(1);
}

int main(void)
{
    pthread_t threads[THREADS];
    int ends[2], status = 0, kept = 1;
    MUST(pthread_barrier_init(&all, NULL, THREADS + 1));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    pid_t child = fork();
    if (child == 0)
        count(take(ends[0]));
    for (long i = 0; i < THREADS; i++)
        threads[i] = start(gives_way, (void *)i);
    pthread_barrier_wait(&all);
    give(ends[1], filter());
    pthread_barrier_wait(&all);
    for (int i = 0; i < THREADS; i++)
        kept &= (int)(long)join(threads[i]);
    check("each_has_its_stack", kept, "one has another");
    kill(child, SIGTERM);
    waitpid(child, &status, 0);
    check("the_kernel_is_not_told", WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM,
          "more than %d calls: status %#x", FEW, status);
    return verdict();
}
