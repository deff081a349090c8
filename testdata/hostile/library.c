/* A library that waits in a function of its own, for rewritten.c and for bombs in its debug information. */
extern int pause(void);
int wait_here(void) {
    int result = pause();
    return result + 1;
}
