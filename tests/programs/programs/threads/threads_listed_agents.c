/* As threads_listed, in a program that can have mutexes which the kernel must understand: ids are the kernel's. */
#define NEEDS_AGENTS
#include "threads_listed.c"
