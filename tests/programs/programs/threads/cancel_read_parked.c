/* The same with reads that park. */
#include "sockets_for_pipes.h"
#include "cancel_read.c"
