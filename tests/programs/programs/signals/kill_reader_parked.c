/* The same with reads that park. */
#include "sockets_for_pipes.h"
#include "kill_reader.c"
