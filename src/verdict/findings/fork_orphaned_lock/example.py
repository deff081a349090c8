"""A process is forked while another thread holds a lock; the child needs that lock."""
import os
import threading

lock, taken, done = threading.Lock(), threading.Event(), threading.Event()


def write_log():
    with lock:
        taken.set()
        done.wait()


threading.Thread(target=write_log).start()
taken.wait()
child = os.fork()
if child == 0:
    with lock:  # held for ever: the child has no thread that could release it
        os._exit(0)
os.waitpid(child, 0)
done.set()
