/* Socket pairs in place of pipes, for a program that is included after this. A runtime may let the kernel wake who reads from a
 * pipe, and wake who reads from a socket itself: the program sees the same. */
#ifndef SOCKETS_FOR_PIPES_H
#define SOCKETS_FOR_PIPES_H
#include "case.h"
#include <sys/socket.h>
#define pipe(ends) socketpair(AF_UNIX, SOCK_STREAM, 0, ends)
#endif
