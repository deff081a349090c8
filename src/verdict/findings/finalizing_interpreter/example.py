"""At the end of the program __del__ needs a lock that a daemon thread holds."""
import builtins
import threading

lock, taken = threading.Lock(), threading.Event()


def work_for_ever():
    with lock:
        taken.set()
        while True:
            pass


class Log:
    def __init__(self):
        self.lock = lock

    def __del__(self):
        with self.lock:
            pass


threading.Thread(target=work_for_ever, daemon=True).start()
taken.wait()
builtins.log = Log()  # lives until the interpreter is taken down
