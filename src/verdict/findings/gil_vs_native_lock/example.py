"""One thread holds a native lock and needs the GIL; the other holds the GIL and needs the lock."""
import ctypes
import threading

releasing, keeping = ctypes.CDLL(None), ctypes.PyDLL(None)  # PyDLL keeps the GIL during a call
mutex = (ctypes.c_long * 16)()
locked = threading.Event()


def work():
    releasing.pthread_mutex_lock(mutex)
    locked.set()
    releasing.sleep(1)  # returns to Python, and so needs the GIL
    releasing.pthread_mutex_unlock(mutex)


threading.Thread(target=work).start()
locked.wait()
keeping.pthread_mutex_lock(mutex)
print("not reached")
