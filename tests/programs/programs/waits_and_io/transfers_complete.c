/* Calls that wait until all bytes are moved: through pipes, Unix streams and TCP, more than the buffers hold, while the
 * process makes calls that concern all of its threads and other threads compute. Not one byte may be missing, doubled
 * or out of place. */
#include "connection.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

enum { SIZE = 3 << 20, ENTRIES = 100, MESSAGES = 5 };

static unsigned char source[SIZE], target[SIZE];
static int ends[2], file;
static struct iovec entries[ENTRIES];
static atomic_int over;

/* Uneven parts of the memory, some of them empty. */
static void divide(unsigned char *memory)
{
    size_t at = 0;
    for (int i = 0; i < ENTRIES; i++) {
        size_t length = i % 7 == 3 ? 0 : (size_t)(i * 613 % 50000);
        if (i == ENTRIES - 1 || length > SIZE - at) {
            length = SIZE - at;
        }
        entries[i] = (struct iovec){memory + at, length};
        at += length;
    }
}

static void stream_pipe(void)
{
    int both[2];
    MUST(pipe(both));
    ends[0] = both[1];
    ends[1] = both[0];
}

static void stream_unix(void) { MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends)); }

static void stream_tcp(void) { connect_ends(ends); }

static long by_write(void) { return write(ends[0], source, SIZE); }
static long by_writev(void) { return writev(ends[0], entries, ENTRIES); }
static long by_pwritev2(void) { return pwritev2(ends[0], entries, ENTRIES, -1, 0); }
static long by_send(void) { return send(ends[0], source, SIZE, 0); }
static long by_sendto(void) { return sendto(ends[0], source, SIZE, MSG_NOSIGNAL, NULL, 0); }
static long by_sendfile(void)
{
    off_t offset = 0;
    return sendfile(ends[0], file, &offset, SIZE);
}

static long by_sendmsg(void)
{
    struct msghdr message = {.msg_iov = entries, .msg_iovlen = ENTRIES};
    long sent = sendmsg(ends[0], &message, MSG_EOR);
    return message.msg_iov == entries && message.msg_iovlen == ENTRIES ? sent : -2;
}

static long by_sendmmsg(void)
{
    struct mmsghdr messages[MESSAGES] = {0};
    for (int i = 0; i < MESSAGES; i++) {
        int first = i * ENTRIES / MESSAGES;
        messages[i].msg_hdr.msg_iov = entries + first;
        messages[i].msg_hdr.msg_iovlen = (size_t)((i + 1) * ENTRIES / MESSAGES - first);
    }
    int count = sendmmsg(ends[0], messages, MESSAGES, 0);
    long sent = count == MESSAGES ? 0 : -1000 - count;
    for (int i = 0; i < MESSAGES; i++) {
        sent += messages[i].msg_len;
    }
    return sent;
}

/* A descriptor goes with the bytes: once, and with the first of them. */
static long by_rights(void)
{
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr message = {.msg_iov = entries, .msg_iovlen = ENTRIES, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    *control = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(control), &file, sizeof file);
    return sendmsg(ends[0], &message, 0);
}

static long (*sends)(void);

static void *sender(void *unused)
{
    (void)unused;
    long sent = sends();
    int error = errno;
    close(ends[0]);
    return (void *)(sent < 0 ? -error * 10L + sent : sent);
}

static long in_parts(void)
{
    size_t got = 0;
    settle();
    for (;;) {
        long more = read(ends[1], target + got, SIZE - got < 60000 ? SIZE - got : 60000);
        if (more <= 0) {
            return (long)got;
        }
        got += (size_t)more;
    }
}

static long by_recv(void)
{
    return recv(ends[1], target, SIZE, MSG_WAITALL);
}

static long by_recvmsg(void)
{
    struct msghdr message = {.msg_iov = entries, .msg_iovlen = ENTRIES};
    return recvmsg(ends[1], &message, MSG_WAITALL);
}

static int rights;

static long with_rights(void)
{
    size_t got = 0;
    rights = 0;
    for (;;) {
        char room[CMSG_SPACE(4 * sizeof(int))];
        struct iovec part = {target + got, SIZE - got};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        long more = recvmsg(ends[1], &message, 0);
        if (more <= 0) {
            return (long)got;
        }
        struct cmsghdr *control = CMSG_FIRSTHDR(&message);
        if (control != NULL) {
            int number;
            memcpy(&number, CMSG_DATA(control), sizeof number);
            close(number);
            rights += 1 + 100 * (got != 0);
        }
        got += (size_t)more;
    }
}

static void moves(const char *name, void (*stream)(void), long (*send_by)(void), long (*receive_by)(void))
{
    memset(target, 0, SIZE);
    stream();
    divide(receive_by == by_recvmsg ? target : source);
    sends = send_by;
    pthread_t thread = start(sender, NULL);
    long got = receive_by();
    long sent = (long)join(thread);
    close(ends[1]);
    check(name, sent == SIZE && got == SIZE && memcmp(source, target, SIZE) == 0,
          "%ld sent, %ld received, %s", sent, got, memcmp(source, target, SIZE) ? "others" : "the same");
}

/* A sender that stops on the way. */
static long slowly(void)
{
    long sent = 0;
    for (int i = 0; i < 8; i++) {
        settle();
        sent += send(ends[0], source + sent, SIZE / 8, 0);
    }
    return sent;
}

static void *disturb(void *unused)
{
    while (!atomic_load(&over)) {
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        struct timespec pause = {0, 300000};
        nanosleep(&pause, NULL);
    }
    return unused;
}

static void *compute(void *unused)
{
    while (!atomic_load(&over)) {
    }
    return unused;
}

static void all(const char *beside)
{
    char name[80];
    struct {
        const char *name;
        void (*open)(void);
        int is_socket;
    } streams[] = {{"pipe", stream_pipe, 0}, {"unix", stream_unix, 1}, {"tcp", stream_tcp, 1}};
    struct {
        const char *name;
        long (*send)(void);
        int wants_socket;
    } calls[] = {
        {"write", by_write, 0},       {"writev", by_writev, 0},   {"pwritev2", by_pwritev2, 0}, {"send", by_send, 1},
        {"sendto", by_sendto, 1},     {"sendmsg", by_sendmsg, 1}, {"sendmmsg", by_sendmmsg, 1},
        {"sendfile", by_sendfile, 0},
    };
    for (int i = 0; i < 3; i++) {
        for (size_t j = 0; j < sizeof calls / sizeof *calls; j++) {
            /* The kernel fills a pipe from a file once. */
            if (calls[j].wants_socket <= streams[i].is_socket && (streams[i].is_socket || calls[j].send != by_sendfile)) {
                snprintf(name, sizeof name, "%s_%s%s", calls[j].name, streams[i].name, beside);
                moves(name, streams[i].open, calls[j].send, in_parts);
            }
        }
        if (streams[i].is_socket) {
            snprintf(name, sizeof name, "recv_%s%s", streams[i].name, beside);
            moves(name, streams[i].open, slowly, by_recv);
            snprintf(name, sizeof name, "recvmsg_%s%s", streams[i].name, beside);
            moves(name, streams[i].open, slowly, by_recvmsg);
        }
    }
    snprintf(name, sizeof name, "rights%s", beside);
    moves(name, stream_unix, by_rights, with_rights);
    check("rights_came_once", rights == 1, "%d", rights);
}

int main(void)
{
    unsigned state = 1;
    for (int i = 0; i < SIZE; i++) {
        state = state * 1103515245 + 12345;
        source[i] = (unsigned char)(state >> 16);
    }
    file = memfd_create("source", 0);
    check("file", write(file, source, SIZE) == SIZE, "errno %d", errno);
    pthread_t disturbs = start(disturb, NULL);
    all("");
    pthread_t computes = start(compute, NULL);
    all("_computing");
    int zero = open("/dev/zero", O_RDONLY);
    int whole = 1;
    for (int i = 0; i < 50; i++) {
        whole &= read(zero, target, SIZE) == SIZE;
    }
    check("read_zero", whole, "errno %d", errno);
    for (int i = 0; i < 20; i++) {
        whole &= getrandom(target, SIZE, 0) == SIZE;
    }
    check("getrandom", whole, "errno %d", errno);
    atomic_store(&over, 1);
    join(disturbs);
    join(computes);
    return verdict();
}
