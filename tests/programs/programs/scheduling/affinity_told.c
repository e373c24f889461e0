/* As many processors as the first argument says are told: before the first thread and after it, to a thread, to a child,
 * to an executed program, and when all or those that were told were asked for. There may be more processors. */
#include "case.h"
#include <sched.h>
#include <sys/wait.h>

static int wanted;

static int wrong(void)
{
    cpu_set_t mask, by_id;
    CPU_ZERO(&mask);
    CPU_ZERO(&by_id);
    MUST(sched_getaffinity(0, sizeof mask, &mask));
    /* As OpenMP asks. */
    MUST(pthread_getaffinity_np(pthread_self(), sizeof by_id, &by_id));
    return CPU_COUNT(&mask) != wanted || !CPU_EQUAL(&mask, &by_id);
}

static void *of_thread(void *unused)
{
    (void)unused;
    return (void *)(long)wrong();
}

static int of_child(char **words)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        if (words != NULL)
            execv("/proc/self/exe", words);
        _exit(wrong());
    }
    return waitpid(child, &status, 0) != child || status != 0;
}

int main(int count, char **words)
{
    MUST(count < 2);
    wanted = atoi(words[1]);
    if (count > 2)
        return wrong();
    char *again[] = {words[0], words[1], "again", NULL};
    int found = wrong() | of_child(NULL) << 1 | of_child(again) << 2;
    found |= (int)(long)join(start(of_thread, NULL)) << 3;
    found |= wrong() << 4 | of_child(NULL) << 5 | of_child(again) << 6;
    cpu_set_t told, all;
    MUST(sched_getaffinity(0, sizeof told, &told));
    MUST(sched_setaffinity(0, sizeof told, &told));
    found |= wrong() << 9 | of_child(again) << 10;
    memset(&all, 0xff, sizeof all);
    MUST(sched_setaffinity(0, sizeof all, &all));
    found |= wrong() << 7 | of_child(again) << 8;
    check("affinity_told", found == 0, "%x", found);
    return 0;
}
