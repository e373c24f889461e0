/* The same with reads that park. */
#include "sockets_for_pipes.h"
#include "wait_and_handler.c"
