/* A library whose constructor calls back into the program that loads it. */
extern void when_loaded(void);

__attribute__((constructor)) static void loaded(void) { when_loaded(); }
