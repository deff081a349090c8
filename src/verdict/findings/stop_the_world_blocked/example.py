"""Without a GIL: a thread waits, attached, for a native lock whose holder collects garbage."""
import ctypes
import gc
import threading

attached = ctypes.PyDLL(None)  # stays attached during a call, as ctypes.CDLL does not
mutex = (ctypes.c_long * 16)()


def wait_for_mutex():
    attached.pthread_mutex_lock(mutex)


attached.pthread_mutex_lock(mutex)
threading.Thread(target=wait_for_mutex).start()
while True:
    gc.collect()  # asks all attached threads to pause, and waits until they have
