"""A thread is joined under the lock that it needs before it can end."""
import threading

lock, taken = threading.Lock(), threading.Event()


def refresh():
    taken.wait()
    with lock:
        print("refreshed")


thread = threading.Thread(target=refresh)
thread.start()
with lock:
    taken.set()
    thread.join()
