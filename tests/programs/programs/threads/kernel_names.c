/* Threads with names of their own, which compute one after another, and their parent, which reads the names of the kernel
 * threads: one of them has the name of the thread that computes. With an argument none has. */
#include "case.h"
#include <dirent.h>
#include <semaphore.h>
#include <stdint.h>
#include <sys/wait.h>

static volatile int turn;
static int to_parent[2], to_child[2];
static const char *const names[] = {"first-worker", "second-worker"};
static sem_t named, may_work[2];

/* Has its name, and then waits. Later it is at work until the parent has looked. */
static void *works(void *number)
{
    int own = (int)(intptr_t)number;
    pthread_setname_np(pthread_self(), names[own]);
    sem_post(&named);
    sem_wait(&may_work[own]);
    int mine = turn;
    MUST(write(to_parent[1], "w", 1) != 1);
    while (turn == mine)
        ;
    return number;
}

/* The thread that comes back from read(2) ends the other's work. */
static void has_two_workers(void)
{
    pthread_t workers[2];
    char byte;
    MUST(sem_init(&named, 0, 0));
    for (int i = 0; i < 2; i++) {
        MUST(sem_init(&may_work[i], 0, 0));
        workers[i] = start(works, (void *)(intptr_t)i);
    }
    sem_wait(&named);
    sem_wait(&named);
    for (int i = 0; i < 2; i++) {
        sem_post(&may_work[i]);
        MUST(read(to_child[0], &byte, 1) != 1);
        turn++;
        join(workers[i]);
    }
    _exit(7);
}

static int has_kernel_thread(pid_t process, const char *name)
{
    char path[300], text[20];
    int found = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *tasks = opendir(path);
    MUST(tasks == NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)process, task->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            int read = fscanf(file, "%19s", text) == 1;
            found += read && strcmp(text, name) == 0;
            fclose(file);
        }
    }
    closedir(tasks);
    return found;
}

int main(int argc, char **argv)
{
    int status, seen = 0, follow = argc == 1;
    char byte;
    (void)argv;
    MUST(pipe(to_parent));
    MUST(pipe(to_child));
    pid_t child = fork();
    if (child == 0)
        has_two_workers();
    for (int i = 0; i < 2; i++) {
        MUST(read(to_parent[0], &byte, 1) != 1);
        while (follow && !has_kernel_thread(child, names[i]))
            sched_yield();
        seen += has_kernel_thread(child, names[i]) != 0;
        MUST(write(to_child[1], "g", 1) != 1);
    }
    MUST(waitpid(child, &status, 0) != child);
    check("kernel_names", seen == (follow ? 2 : 0) && WIFEXITED(status) && WEXITSTATUS(status) == 7,
          "seen %d, status %#x", seen, status);
    return verdict();
}
