/* What becomes of each call that waits when a handler runs meanwhile: with SA_RESTART and without, in the first thread
 * and in another one (signal(7)). A call that goes on is ended by what it waits for. The answers are printed; those of a
 * native run are right. */
#include "case.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

/* So many signals are sent to a call, each a moment after the other, or until it is over. */
enum { SIGNALS = 20, MOMENT_US = 3000 };

static int pipes[2], full[2], stream[2], full_stream[2], limited[2], listener, full_listener, instance, event, timer, watch,
    locked, files[2], queue_in, queue_out, semaphores;
static mqd_t messages, full_messages;
static sem_t semaphore;
static _Atomic int word;
static pid_t child;
static unsigned long context;
static char page[65536];
static const struct timespec long_time = {5, 0};
static struct { long type; char text[8192]; } message;

static void nothing(int signal) { (void)signal; }

static void end_pipe(void) { MUST(write(pipes[1], "x", 1) != 1); }
static void end_full(void) { MUST(read(full[0], page, sizeof page) <= 0); }
static void end_stream(void) { MUST(write(stream[1], "x", 1) != 1); }
static void end_full_stream(void)
{
    while (recv(full_stream[1], page, sizeof page, MSG_DONTWAIT) > 0) {
    }
}
static void end_limited(void) { MUST(write(limited[1], "x", 1) != 1); }
static void end_event(void) { MUST(eventfd_write(event, 1)); }
static void end_timer(void)
{
    struct itimerspec soon = {.it_value = {0, 1}};
    MUST(timerfd_settime(timer, 0, &soon, NULL));
}
static void end_watch(void) { MUST(chmod("restarts.file", 0600)); }
static void end_word(void)
{
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE, 1);
}
static void end_semaphore(void) { MUST(sem_post(&semaphore)); }
static void end_msgrcv(void)
{
    message.type = 1;
    MUST(msgsnd(queue_in, &message, 1, 0));
}
static void end_msgsnd(void) { MUST(msgrcv(queue_out, &message, sizeof message.text, 0, 0) < 0); }
static void end_semop(void) { MUST(semop(semaphores, &(struct sembuf){0, 1, 0}, 1)); }
static void end_receive(void) { MUST(mq_send(messages, "x", 1, 0)); }
static void end_send(void) { MUST(mq_receive(full_messages, page, sizeof page, NULL) < 0); }
static void end_child(void) { MUST(kill(child, SIGKILL)); }
static void end_accept(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "restarts.socket"};
    int one = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(connect(one, (void *)&name, sizeof name));
    close(one);
}
static void end_fifo(void) { close(open("restarts.fifo", O_WRONLY)); }

/* A child that holds the file's locks until it is ended. */
static void begin_lock(void)
{
    int ready[2];
    MUST(pipe(ready));
    child = fork();
    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK};
        int own = open("restarts.file", O_RDWR);
        if (fcntl(own, F_SETLKW, &lock) || flock(own, LOCK_EX) || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    MUST(read(ready[0], page, 1) != 1);
    close(ready[0]);
    close(ready[1]);
}
static void end_lock(void)
{
    end_child();
    MUST(waitpid(child, NULL, 0) != child);
}
static void begin_child(void)
{
    child = fork();
    if (child == 0)
        for (;;)
            pause();
}
static void end_none(void) {}

static long do_read(void) { return read(pipes[0], page, 1); }
static long do_readv(void) { return readv(pipes[0], &(struct iovec){page, 1}, 1); }
static long do_write(void) { return write(full[1], page, 1); }
static long do_writev(void) { return writev(full[1], &(struct iovec){page, 1}, 1); }
static long do_splice(void) { return splice(pipes[0], NULL, files[1], NULL, 1, 0); }
static long do_recv(void) { return recv(stream[0], page, 1, 0); }
static long do_recvmsg(void)
{
    struct iovec one = {page, 1};
    return recvmsg(stream[0], &(struct msghdr){.msg_iov = &one, .msg_iovlen = 1}, 0);
}
static long do_read_socket(void) { return read(stream[0], page, 1); }
static long do_send(void) { return send(full_stream[0], page, 1, 0); }
static long do_sendmsg(void)
{
    struct iovec one = {page, 1};
    return sendmsg(full_stream[0], &(struct msghdr){.msg_iov = &one, .msg_iovlen = 1}, 0);
}
static long do_recv_limited(void) { return recv(limited[0], page, 1, 0); }
static long do_read_limited(void) { return read(limited[0], page, 1); }
static long do_accept(void)
{
    int one = accept(listener, NULL, NULL);
    if (one >= 0)
        close(one);
    return one < 0 ? -1 : 0;
}
static long do_poll(void) { return poll(&(struct pollfd){pipes[0], POLLIN, 0}, 1, 5000); }
static long do_poll_none(void) { return poll(NULL, 0, 5000); }
static long do_ppoll(void)
{
    struct timespec limit = long_time;
    return ppoll(&(struct pollfd){pipes[0], POLLIN, 0}, 1, &limit, NULL);
}
static long do_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    return select(pipes[0] + 1, &set, NULL, NULL, &(struct timeval){5, 0});
}
static long do_pselect(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    return pselect(pipes[0] + 1, &set, NULL, NULL, &long_time, NULL);
}
static long do_epoll_wait(void) { return epoll_wait(instance, &(struct epoll_event){0}, 1, 5000); }
static long do_epoll_pwait(void)
{
    sigset_t none;
    sigemptyset(&none);
    return epoll_pwait(instance, &(struct epoll_event){0}, 1, 5000, &none);
}
static long do_eventfd(void) { return read(event, page, 8); }
static long do_timerfd(void) { return read(timer, page, 8); }
static long do_inotify(void) { return read(watch, page, sizeof page) > 0 ? 0 : -1; }
static long do_nanosleep(void) { return nanosleep(&long_time, NULL); }
static long do_clock_nanosleep(void)
{
    errno = clock_nanosleep(CLOCK_MONOTONIC, 0, &long_time, NULL);
    return errno ? -1 : 0;
}
static long do_sleep_until(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    errno = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL);
    return errno ? -1 : 0;
}
static long do_sleep_tai(void)
{
    errno = clock_nanosleep(CLOCK_TAI, 0, &long_time, NULL);
    return errno ? -1 : 0;
}
static long do_futex(void) { return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL); }
static long do_futex_shared(void) { return syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL); }
static long do_futex_limited(void) { return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &long_time); }
static long do_futex_until(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 5;
    return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &until, NULL, -1);
}
static void end_word_private(void)
{
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1);
}
static long do_sem_wait(void) { return sem_wait(&semaphore); }
static long do_sem_timedwait(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    return sem_timedwait(&semaphore, &until);
}
static long do_msgrcv(void) { return msgrcv(queue_in, &message, 1, 0, 0); }
static long do_msgsnd(void)
{
    message.type = 1;
    return msgsnd(queue_out, &message, sizeof message.text, 0);
}
static long do_semop(void) { return semop(semaphores, &(struct sembuf){0, -1, 0}, 1); }
static long do_semtimedop(void) { return semtimedop(semaphores, &(struct sembuf){0, -1, 0}, 1, &long_time); }
static long do_mq_receive(void) { return mq_receive(messages, page, sizeof page, NULL); }
static long do_mq_timedreceive(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    return mq_timedreceive(messages, page, sizeof page, NULL, &until);
}
static long do_mq_send(void) { return mq_send(full_messages, "x", 1, 0); }
static long do_sigtimedwait(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return sigtimedwait(&set, NULL, &long_time);
}
static long do_sigwaitinfo(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    return sigwaitinfo(&set, NULL);
}
static long do_sigsuspend(void)
{
    sigset_t none;
    sigemptyset(&none);
    return sigsuspend(&none);
}
static long do_pause(void) { return pause(); }
static long do_wait4(void) { return waitpid(child, NULL, 0) == child ? 0 : -1; }
static long do_waitid(void)
{
    siginfo_t information;
    return waitid(P_PID, child, &information, WEXITED);
}
static long do_setlkw(void)
{
    struct flock lock = {.l_type = F_WRLCK};
    return fcntl(locked, F_SETLKW, &lock);
}
static long do_flock(void) { return flock(locked, LOCK_EX); }
static long do_setlkw_description(void)
{
    struct flock lock = {.l_type = F_WRLCK};
    return fcntl(locked, F_OFD_SETLKW, &lock);
}
static long do_accept4(void)
{
    int one = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (one >= 0)
        close(one);
    return one < 0 ? -1 : 0;
}
/* To a socket whose backlog is full. */
static long do_connect(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "restarts.full"};
    int one = socket(AF_UNIX, SOCK_STREAM, 0);
    long answer = connect(one, (void *)&name, sizeof name);
    int error = errno;
    close(one);
    errno = error;
    return answer;
}
static void end_connect(void) { close(accept(full_listener, NULL, NULL)); }
static long do_recvmmsg(void)
{
    struct iovec one = {page, 1};
    struct mmsghdr header = {.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}};
    return recvmmsg(stream[0], &header, 1, 0, NULL);
}
static long do_sendmmsg(void)
{
    struct iovec one = {page, 1};
    struct mmsghdr header = {.msg_hdr = {.msg_iov = &one, .msg_iovlen = 1}};
    return sendmmsg(full_stream[0], &header, 1, 0);
}
static long do_tee(void) { return tee(pipes[0], files[1], 1, 0); }
static long do_vmsplice(void) { return vmsplice(full[1], &(struct iovec){page, 1}, 1, 0); }
static long do_epoll_pwait2(void)
{
    return syscall(SYS_epoll_pwait2, instance, &(struct epoll_event){0}, 1, &long_time, NULL, 8);
}
static long do_io_getevents(void)
{
    char completion[32];
    struct timespec limit = long_time;
    return syscall(SYS_io_getevents, context, 1L, 1L, completion, &limit);
}
static long do_futex_shared_until(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 5;
    return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &until, NULL, -1);
}
static long do_open_fifo(void)
{
    int one = open("restarts.fifo", O_RDONLY);
    if (one >= 0)
        close(one);
    return one < 0 ? -1 : 0;
}

static const struct call {
    const char *name;
    long (*make)(void);
    void (*end)(void);
    void (*begin)(void);
} calls[] = {
    {"read", do_read, end_pipe, NULL},
    {"readv", do_readv, end_pipe, NULL},
    {"write", do_write, end_full, NULL},
    {"writev", do_writev, end_full, NULL},
    {"splice", do_splice, end_pipe, NULL},
    {"recv", do_recv, end_stream, NULL},
    {"recvmsg", do_recvmsg, end_stream, NULL},
    {"read of a socket", do_read_socket, end_stream, NULL},
    {"send", do_send, end_full_stream, NULL},
    {"sendmsg", do_sendmsg, end_full_stream, NULL},
    {"recv with SO_RCVTIMEO", do_recv_limited, end_limited, NULL},
    {"read with SO_RCVTIMEO", do_read_limited, end_limited, NULL},
    {"accept", do_accept, end_accept, NULL},
    {"poll", do_poll, end_pipe, NULL},
    {"poll of nothing", do_poll_none, end_none, NULL},
    {"ppoll", do_ppoll, end_pipe, NULL},
    {"select", do_select, end_pipe, NULL},
    {"pselect", do_pselect, end_pipe, NULL},
    {"epoll_wait", do_epoll_wait, end_pipe, NULL},
    {"epoll_pwait", do_epoll_pwait, end_pipe, NULL},
    {"eventfd", do_eventfd, end_event, NULL},
    {"timerfd", do_timerfd, end_timer, NULL},
    {"inotify", do_inotify, end_watch, NULL},
    {"nanosleep", do_nanosleep, end_none, NULL},
    {"clock_nanosleep", do_clock_nanosleep, end_none, NULL},
    {"clock_nanosleep until", do_sleep_until, end_none, NULL},
    {"clock_nanosleep of CLOCK_TAI", do_sleep_tai, end_none, NULL},
    {"futex", do_futex, end_word_private, NULL},
    {"futex with a time", do_futex_limited, end_word_private, NULL},
    {"futex until", do_futex_until, end_word_private, NULL},
    {"futex, shared", do_futex_shared, end_word, NULL},
    {"sem_wait", do_sem_wait, end_semaphore, NULL},
    {"sem_timedwait", do_sem_timedwait, end_semaphore, NULL},
    {"msgrcv", do_msgrcv, end_msgrcv, NULL},
    {"msgsnd", do_msgsnd, end_msgsnd, NULL},
    {"semop", do_semop, end_semop, NULL},
    {"semtimedop", do_semtimedop, end_semop, NULL},
    {"mq_receive", do_mq_receive, end_receive, NULL},
    {"mq_timedreceive", do_mq_timedreceive, end_receive, NULL},
    {"mq_send", do_mq_send, end_send, NULL},
    {"sigtimedwait", do_sigtimedwait, end_none, NULL},
    {"sigwaitinfo", do_sigwaitinfo, end_none, NULL},
    {"sigsuspend", do_sigsuspend, end_none, NULL},
    {"pause", do_pause, end_none, NULL},
    {"wait4", do_wait4, end_child, begin_child},
    {"waitid", do_waitid, end_child, begin_child},
    {"F_SETLKW", do_setlkw, end_lock, begin_lock},
    {"flock", do_flock, end_lock, begin_lock},
    {"F_OFD_SETLKW", do_setlkw_description, end_lock, begin_lock},
    {"accept4", do_accept4, end_accept, NULL},
    {"connect", do_connect, end_connect, NULL},
    {"recvmmsg", do_recvmmsg, end_stream, NULL},
    {"sendmmsg", do_sendmmsg, end_full_stream, NULL},
    {"tee", do_tee, end_pipe, NULL},
    {"vmsplice", do_vmsplice, end_full, NULL},
    {"epoll_pwait2", do_epoll_pwait2, end_pipe, NULL},
    {"io_getevents", do_io_getevents, end_none, NULL},
    {"futex, shared, until", do_futex_shared_until, end_word, NULL},
    {"open of a FIFO", do_open_fifo, end_fifo, NULL},
};

/* Everything is as when nothing was waited for. */
static void reset(void)
{
    struct flock unlock = {.l_type = F_UNLCK};
    char drop[8];
    word = 0;
    for (int *ends = pipes; ends; ends = ends == pipes ? stream : ends == stream ? limited : NULL) {
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        while (read(ends[0], page, sizeof page) > 0) {
        }
        fcntl(ends[0], F_SETFL, 0);
    }
    fcntl(full[1], F_SETFL, O_NONBLOCK);
    while (write(full[1], page, 4096) > 0) {
    }
    fcntl(full[1], F_SETFL, 0);
    while (send(full_stream[0], page, 4096, MSG_DONTWAIT) > 0) {
    }
    fcntl(event, F_SETFL, O_NONBLOCK);
    (void)!read(event, drop, 8);
    fcntl(event, F_SETFL, 0);
    fcntl(watch, F_SETFL, O_NONBLOCK);
    (void)!read(watch, page, sizeof page);
    fcntl(watch, F_SETFL, 0);
    while (sem_trywait(&semaphore) == 0) {
    }
    while (msgrcv(queue_in, &message, sizeof message.text, 0, IPC_NOWAIT) >= 0) {
    }
    message.type = 1;
    while (msgsnd(queue_out, &message, sizeof message.text, IPC_NOWAIT) == 0) {
    }
    while (semop(semaphores, &(struct sembuf){0, -1, IPC_NOWAIT}, 1) == 0) {
    }
    struct timespec past = {0, 0};
    while (mq_timedreceive(messages, page, sizeof page, NULL, &past) >= 0) {
    }
    while (mq_timedsend(full_messages, "x", 1, 0, &past) == 0) {
    }
    fcntl(locked, F_SETLK, &unlock);
    fcntl(locked, F_OFD_SETLK, &unlock);
    flock(locked, LOCK_UN);
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "restarts.full"};
    for (int one = 0; one >= 0;) {
        int next = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        one = connect(next, (void *)&name, sizeof name);
        close(next);
    }
}

static const struct call *current;
static const char *where;
static _Atomic int over;
static pthread_t target;

/* Sends the signals, then ends the call. */
static void *disturb(void *unused)
{
    (void)unused;
    for (int i = 0; i < SIGNALS && !over; i++) {
        usleep(MOMENT_US);
        if (!over)
            pthread_kill(target, SIGUSR1);
    }
    usleep(MOMENT_US);
    if (!over)
        current->end();
    return NULL;
}

static void one(const struct call *call, int restart)
{
    struct sigaction action = {.sa_handler = nothing, .sa_flags = restart ? SA_RESTART : 0};
    sigset_t usr1, before;
    pthread_t disturber;
    reset();
    current = call;
    if (call->begin)
        call->begin();
    over = 0;
    target = pthread_self();
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    MUST(sigaction(SIGUSR1, &action, NULL));
    MUST(pthread_sigmask(SIG_BLOCK, &usr1, &before));
    MUST(pthread_create(&disturber, NULL, disturb, NULL));
    MUST(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL));
    errno = 0;
    long answer = call->make();
    int error = errno;
    over = 1;
    MUST(pthread_join(disturber, NULL));
    printf("%s, %s%s: %s\n", where, call->name, restart ? ", SA_RESTART" : "",
           answer >= 0 ? "went on" : strerrorname_np(error));
    fflush(stdout);
    if (call->begin) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    MUST(pthread_sigmask(SIG_SETMASK, &before, NULL));
}

static void *all(void *name)
{
    where = name;
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int restart = 0; restart < 2; restart++)
            one(calls + i, restart);
    return NULL;
}

int main(void)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "restarts.socket"};
    struct sockaddr_un full_name = {.sun_family = AF_UNIX, .sun_path = "restarts.full"};
    struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = 16};
    char mq_name[64];
    pthread_t thread;
    signal(SIGPIPE, SIG_IGN);
    MUST(pipe(pipes));
    MUST(pipe(full));
    MUST(pipe(files));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, stream));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, full_stream));
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, limited));
    MUST(setsockopt(limited[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){5, 0}, sizeof(struct timeval)));
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(bind(listener, (void *)&name, sizeof name));
    MUST(listen(listener, 8));
    full_listener = socket(AF_UNIX, SOCK_STREAM, 0);
    MUST(bind(full_listener, (void *)&full_name, sizeof full_name));
    MUST(listen(full_listener, 0));
    MUST(syscall(SYS_io_setup, 1, &context));
    instance = epoll_create1(0);
    MUST(epoll_ctl(instance, EPOLL_CTL_ADD, pipes[0], &(struct epoll_event){.events = EPOLLIN}));
    event = eventfd(0, 0);
    timer = timerfd_create(CLOCK_MONOTONIC, 0);
    locked = open("restarts.file", O_RDWR | O_CREAT, 0600);
    watch = inotify_init();
    MUST(inotify_add_watch(watch, "restarts.file", IN_ATTRIB) < 0);
    MUST(mkfifo("restarts.fifo", 0600));
    MUST(sem_init(&semaphore, 0, 0));
    queue_in = msgget(IPC_PRIVATE, 0600);
    queue_out = msgget(IPC_PRIVATE, 0600);
    semaphores = semget(IPC_PRIVATE, 1, 0600);
    snprintf(mq_name, sizeof mq_name, "/restarts-in-%d", getpid());
    messages = mq_open(mq_name, O_RDWR | O_CREAT, 0600, &attributes);
    mq_unlink(mq_name);
    snprintf(mq_name, sizeof mq_name, "/restarts-out-%d", getpid());
    full_messages = mq_open(mq_name, O_RDWR | O_CREAT, 0600, &attributes);
    mq_unlink(mq_name);
    MUST(queue_in < 0 || queue_out < 0 || semaphores < 0 || messages < 0 || full_messages < 0);
    all("first thread");
    MUST(pthread_create(&thread, NULL, all, "another thread"));
    MUST(pthread_join(thread, NULL));
    msgctl(queue_in, IPC_RMID, NULL);
    msgctl(queue_out, IPC_RMID, NULL);
    semctl(semaphores, 0, IPC_RMID);
    unlink("restarts.file");
    unlink("restarts.fifo");
    unlink("restarts.socket");
    return 0;
}
