/* A thread cancelled in sem_wait, pthread_join, sigwait and accept. */
#include "case.h"
#include <netinet/in.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/socket.h>

static sem_t never;
static pthread_t forever;
static int listener;

static void *wait_semaphore(void *unused)
{
    sem_wait(&never);
    return unused;
}

static void *wait_join(void *unused)
{
    pthread_join(forever, NULL);
    return unused;
}

static void *wait_signal(void *unused)
{
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigwait(&set, &signal);
    return unused;
}

static void *wait_accept(void *unused)
{
    accept(listener, NULL, NULL);
    return unused;
}

static void try(const char *name, void *(*body)(void *))
{
    pthread_t thread = start(body, NULL);
    settle();
    pthread_cancel(thread);
    void *result = join(thread);
    check(name, result == PTHREAD_CANCELED, "joined %p", result);
}

int main(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL));
    MUST(sem_init(&never, 0, 0));
    listener = socket(AF_INET, SOCK_STREAM, 0);
    MUST(bind(listener, (struct sockaddr *)&any, sizeof any));
    MUST(listen(listener, 1));
    forever = start(wait_semaphore, NULL);
    try("cancel_sem_wait", wait_semaphore);
    try("cancel_join", wait_join);
    try("cancel_sigwait", wait_signal);
    try("cancel_accept", wait_accept);
    sem_post(&never);
    join(forever);
    return verdict();
}
