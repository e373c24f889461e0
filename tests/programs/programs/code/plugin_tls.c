/* The library that dlopen_tls.c loads: a thread-local with a value to start from. */
static __thread int value = 4242;
static __thread char block[3000];

int plugin_get(void) { return value + block[value % 3000]; }
void plugin_set(int to) { value = to; }
