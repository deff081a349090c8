/* A library whose constructor waits for a post that never comes: whoever loads it keeps the loader's lock. */
#include <semaphore.h>

static sem_t first_packet;

__attribute__((constructor)) static void wait_for_packet(void) {
    sem_init(&first_packet, 0, 0);
    sem_wait(&first_packet);
}
