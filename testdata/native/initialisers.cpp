// Two threads initialise the static variables of two functions in opposite orders.
// Prints "READY pids=P" when both are inside; ends by SIGALRM after two minutes.
#include <cstdio>
#include <pthread.h>
#include <unistd.h>

static pthread_barrier_t both;
int palette(bool outer), fonts(bool outer);

struct Palette {
    int size;
    explicit Palette(bool outer) : size(0) {
        if (outer) pthread_barrier_wait(&both), size = fonts(false);
    }
};

struct Fonts {
    int size;
    explicit Fonts(bool outer) : size(0) {
        if (outer) pthread_barrier_wait(&both), size = palette(false);
    }
};

int palette(bool outer) {
    static Palette the_palette(outer);
    return the_palette.size;
}

int fonts(bool outer) {
    static Fonts the_fonts(outer);
    return the_fonts.size;
}

static void *draw(void *) { return palette(true), nullptr; }
static void *layout(void *) { return fonts(true), nullptr; }

int main() {
    alarm(120);
    pthread_barrier_init(&both, nullptr, 2);
    pthread_t threads[2];
    pthread_create(&threads[0], nullptr, draw, nullptr);
    pthread_setname_np(threads[0], "draw");
    pthread_create(&threads[1], nullptr, layout, nullptr);
    pthread_setname_np(threads[1], "layout");
    std::printf("READY pids=%d\n", getpid());
    std::fflush(stdout);
    pthread_join(threads[0], nullptr);
}
