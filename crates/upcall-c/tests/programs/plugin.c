/* A library that is loaded while the program runs: its thread-local storage is made where a thread touches it. */
static __thread char text[4096] = "fresh";

char *plugin_text(void);
char *plugin_text(void)
{
    return text;
}
