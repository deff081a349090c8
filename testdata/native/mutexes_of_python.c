/* An extension's own PyMutex (CPython 3.13 and newer): two taken in both orders, and one whose holder goes on.
   Each call says that it has its first mutex through `here`, and waits for the other call there. */
#include <Python.h>
#include <unistd.h>

static PyMutex accounts, audit;
static volatile int here[2];

static void meet(int own) {
    here[own] = 1;
    while (!here[!own])
        usleep(1000);
}

void accounts_first(void) {
    PyMutex_Lock(&accounts);
    meet(0);
    PyMutex_Lock(&audit);
    PyMutex_Unlock(&audit);
    PyMutex_Unlock(&accounts);
}

void audit_first(void) {
    PyMutex_Lock(&audit);
    meet(1);
    PyMutex_Lock(&accounts);
    PyMutex_Unlock(&accounts);
    PyMutex_Unlock(&audit);
}

void long_work(void) {
    PyMutex_Lock(&accounts);
    meet(0);
    sleep(100);
    PyMutex_Unlock(&accounts);
}

void behind_it(void) {
    meet(1);
    PyMutex_Lock(&accounts);
    PyMutex_Unlock(&accounts);
}
