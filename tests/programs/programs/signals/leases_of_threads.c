/* The signals of a lease (F_SETLEASE) and of a watched directory (F_NOTIFY) come as long as the thread lives that has asked
 * for them, also when many threads have blocked in the kernel at a time and do so no more. A thread's id stands for
 * its process as owner of a descriptor (F_SETOWN). */
#include "case.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { THREADS = 60 };

static char directory[] = "/tmp/leases_XXXXXX";
static sigset_t set;
static pthread_barrier_t asked, awake, over;
static int files[THREADS], directories[THREADS];

static const char *path(long number, const char *what)
{
    static __thread char text[100];
    snprintf(text, sizeof text, "%s/%s%ld", directory, what, number);
    return text;
}

static void *asks(void *number)
{
    long i = (long)number;
    int gate = open(path(0, "gate"), O_RDWR);
    files[i] = open(path(i, "file"), O_RDWR | O_CREAT, 0600);
    MUST(fcntl(files[i], F_SETSIG, SIGRTMIN));
    MUST(fcntl(files[i], F_SETLEASE, F_WRLCK));
    MUST(mkdir(path(i, "directory"), 0700));
    directories[i] = open(path(i, "directory"), O_RDONLY);
    MUST(fcntl(directories[i], F_SETSIG, SIGRTMIN));
    MUST(fcntl(directories[i], F_NOTIFY, DN_CREATE));
    pthread_barrier_wait(&asked);
    MUST(flock(gate, LOCK_SH));
    pthread_barrier_wait(&awake);
    pthread_barrier_wait(&over);
    return number;
}

/* Whether a signal for the descriptor comes. */
static int comes(int descriptor)
{
    siginfo_t information;
    struct timespec limit = {2, 0};
    return sigtimedwait(&set, &information, &limit) == SIGRTMIN && information.si_fd == descriptor;
}

static void *owns(void *unused)
{
    int ends[2], id = gettid();
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    check("owner_by_fcntl", fcntl(ends[0], F_SETOWN, id) == 0, "errno %d", errno);
    check("owner_by_ioctl", ioctl(ends[0], FIOSETOWN, &id) == 0, "errno %d", errno);
    MUST(fcntl(ends[0], F_SETSIG, SIGRTMIN));
    MUST(fcntl(ends[0], F_SETFL, O_ASYNC));
    MUST(write(ends[1], "a", 1) != 1);
    check("owner_gets_it", comes(ends[0]), "errno %d", errno);
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS];
    MUST(mkdtemp(directory) == NULL);
    MUST(pthread_barrier_init(&asked, NULL, THREADS + 1));
    MUST(pthread_barrier_init(&awake, NULL, THREADS + 1));
    MUST(pthread_barrier_init(&over, NULL, THREADS + 1));
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    int gate = open(path(0, "gate"), O_RDWR | O_CREAT, 0600);
    MUST(flock(gate, LOCK_EX));
    for (long i = 0; i < THREADS; i++) {
        threads[i] = start(asks, (void *)i);
    }
    pthread_barrier_wait(&asked);
    settle();
    MUST(flock(gate, LOCK_UN));
    pthread_barrier_wait(&awake);
    settle();
    int leases = 0, watched = 0;
    for (long i = 0; i < THREADS; i++) {
        MUST(open(path(i, "file"), O_RDONLY | O_NONBLOCK) != -1 || errno != EWOULDBLOCK);
        leases += leases == i && comes(files[i]);
        char name[120];
        snprintf(name, sizeof name, "%s/new", path(i, "directory"));
        close(open(name, O_CREAT | O_RDWR, 0600));
        watched += watched == i && comes(directories[i]);
        unlink(name);
        unlink(path(i, "file"));
        rmdir(path(i, "directory"));
    }
    check("leases", leases == THREADS, "%d of %d", leases, THREADS);
    check("directories", watched == THREADS, "%d of %d", watched, THREADS);
    pthread_barrier_wait(&over);
    for (int i = 0; i < THREADS; i++) {
        join(threads[i]);
    }
    join(start(owns, NULL));
    unlink(path(0, "gate"));
    rmdir(directory);
    return verdict();
}
