// Threads that load and unload a library, whose beginning and end take one lock under another in one order: dlopen_storm LIBRARY.
// It says how often that was. With -DLIBRARY it is the library.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;

static void take_both(void) {
    pthread_mutex_lock(&outer);
    pthread_mutex_lock(&inner);
    pthread_mutex_unlock(&inner);
    pthread_mutex_unlock(&outer);
}

#ifdef LIBRARY
__attribute__((constructor)) static void begin(void) { take_both(); }
__attribute__((destructor)) static void end(void) { take_both(); }
#else
static const char *library;
static int loaded;

static void *load(void *unused) {
    for (int i = 0; i < 200; i++) {
        void *handle = dlopen(library, RTLD_NOW);
        take_both();
        if (handle && !dlclose(handle)) __sync_fetch_and_add(&loaded, 1);
    }
    return unused;
}

int main(int count, char **arguments) {
    pthread_t threads[8];
    library = count > 1 ? arguments[1] : "";
    alarm(60);
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, load, 0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
    printf("%d\n", loaded);
    return 0;
}
#endif
