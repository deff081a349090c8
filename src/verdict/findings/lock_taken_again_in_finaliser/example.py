"""The garbage collector starts under a lock and runs a __del__ that takes it."""
import gc
import threading

lock = threading.Lock()


class Connection:
    def __init__(self):
        self.me = self  # a reference cycle: only the collector frees it

    def __del__(self):
        with lock:
            print("closed")


Connection()
with lock:
    gc.collect()  # as almost any allocation may do by itself
