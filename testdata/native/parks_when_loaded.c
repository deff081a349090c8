/* A library whose constructor never returns: whoever loads it keeps the loader's lock. */
#include <unistd.h>

__attribute__((constructor)) static void park(void) {
    for (;;) pause();
}
