/* What constructor_threads.c and its library share. */
#include "case.h"
#include <semaphore.h>

enum { THREADS = 8 };

struct shared {
    pthread_mutex_t mutex, held;
    pthread_cond_t there, back;
    int rounds_there, rounds_back;
    sem_t semaphore, blocks;
    int pipe[2];
    int stop;
    pthread_t threads[THREADS];
};
