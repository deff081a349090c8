// Modules that have locks of their own, as the recorder cannot see them, and others that look like it: what they have is made here, and
// none of it is called. A program makes a thread, has them loaded, and ends: modules_with_locks END MODULE...
//   gcc -g -O1 -pthread modules_with_locks.c && ./a.out returns|_exit|killed MODULE...
//   gcc -shared -fPIC -DKIND modules_with_locks.c -o MODULE
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

#if defined PLAIN
// Locks of the C library.
static pthread_mutex_t ledger = PTHREAD_MUTEX_INITIALIZER;
EXPORTED int pays(void) { return pthread_mutex_lock(&ledger) + pthread_mutex_unlock(&ledger); }

#elif defined RUST
// What the constants of each program with Rust's std have.
EXPORTED const char *const texts[] = {
    "too many active read locks on RwLock",
    "/rustc/59807616e1/library/std/src/sys/sync/rwlock/futex.rs",
};
#elif defined LIKE_RUST
// Rust without std; and a text that another program has as well.
EXPORTED const char *const texts[] = {
    "too many active read locks on RwLock",
    "/rustc/59807616e1/library/core/src/slice/index.rs",
};

#elif defined GO
__attribute__((section(".go.buildinfo"), used)) static const char built[] = "\xff Go buildinf:";
#elif defined LIKE_GO
__attribute__((section(".buildinfo"), used)) static const char built[] = "\xff Go buildinf:";

#elif defined ABSEIL
EXPORTED const char *const texts[] = {"detected illegal recursion into Mutex code"};
#elif defined LIKE_ABSEIL
EXPORTED const char *const texts[] = {"detected illegal recursion into mutex code"};

#elif defined REENTRANT
extern int PyThread_acquire_lock(void *, int) __attribute__((weak));
extern unsigned long PyThread_get_thread_ident(void) __attribute__((weak));
EXPORTED int takes(void *lock, unsigned long owner) {
    return PyThread_acquire_lock && owner != PyThread_get_thread_ident() && PyThread_acquire_lock(lock, 1);
}
#elif defined LIKE_REENTRANT
// A lock that nobody takes twice.
extern int PyThread_acquire_lock(void *, int) __attribute__((weak));
EXPORTED int takes(void *lock) { return PyThread_acquire_lock && PyThread_acquire_lock(lock, 1); }

#elif defined OPEN_MP
extern void GOMP_critical_name_start(void **) __attribute__((weak));
EXPORTED void *critical;
EXPORTED void enters(void) { if (GOMP_critical_name_start) GOMP_critical_name_start(&critical); }
#elif defined LIKE_OPEN_MP
// A runtime of OpenMP, and a loop that takes no lock of it.
EXPORTED void omp_set_lock(void *lock) { (void)lock; }
extern void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned) __attribute__((weak));
EXPORTED void loops(void (*work)(void *)) { if (GOMP_parallel) GOMP_parallel(work, 0, 0, 0); }

#elif defined STATIC_PTHREAD
// A C library's own function, which the module has to itself.
__attribute__((visibility("hidden"), used)) int pthread_mutex_lock(pthread_mutex_t *mutex) { return *(int *)mutex; }
#elif defined LIKE_STATIC_PTHREAD
// One that stands in front of the C library's, and calls that.
__attribute__((visibility("hidden"), used)) int pthread_mutex_lock(pthread_mutex_t *mutex) {
    return ((int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock"))(mutex);
}

#elif defined WITHOUT_GIL
EXPORTED void _Py_DecRefShared(void *object) { (void)object; }
#elif defined LIKE_WITHOUT_GIL
// An extension for such a Python, which has it of the interpreter.
extern void _Py_DecRefShared(void *) __attribute__((weak));
EXPORTED void drops(void *object) { if (_Py_DecRefShared) _Py_DecRefShared(object); }

#elif defined PY_MUTEX
extern void PyMutex_Lock(void *) __attribute__((weak));
EXPORTED void takes(void *mutex) { if (PyMutex_Lock) PyMutex_Lock(mutex); }
#elif defined LIKE_PY_MUTEX
// CPython itself.
EXPORTED void PyMutex_Lock(void *mutex) { (void)mutex; }

#else
static void *nothing(void *argument) { return argument; }

int main(int count, char **arguments) {
    pthread_t thread;
    if (count < 2) return 2;
    if (pthread_create(&thread, 0, nothing, 0) || pthread_join(thread, 0)) return 2;
    for (int one = 2; one < count; one++)
        if (!dlopen(arguments[one], RTLD_LAZY | RTLD_LOCAL)) return 3;
    if (!strcmp(arguments[1], "_exit")) _exit(0);
    if (!strcmp(arguments[1], "killed")) raise(SIGKILL);
    return 0;
}
#endif
