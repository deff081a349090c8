/* With -DPLUGIN a library whose constructor waits for a thread, else the program that loads it. */
#include <dlfcn.h>
#include <pthread.h>
#ifdef PLUGIN
static void *work(void *unused) {
    dlopen("libm.so.6", RTLD_NOW); /* needs the loader's lock, which the thread below has */
    return unused;
}

__attribute__((constructor)) static void start(void) {
    pthread_t worker;
    pthread_create(&worker, 0, work, 0);
    pthread_join(worker, 0);
}
#else
int main(void) {
    return dlopen("./plugin.so", RTLD_NOW) == 0;
}
#endif
