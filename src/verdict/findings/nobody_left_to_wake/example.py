"""Waits that nobody is left to end; an argument chooses another one than that for the queue."""
import queue, sys, threading
from concurrent.futures import Future

results, loaded, meeting = queue.Queue(), threading.Event(), threading.Barrier(2)
changed, registry, slots = threading.Condition(), threading.Lock(), threading.Semaphore(1)

def load():
    results.put(int("not a number"))  # the thread ends by an error

def condition():
    with changed:
        changed.wait()

def notify():
    with registry, changed:
        changed.notify()

def nested():
    with registry:
        threading.Thread(target=notify).start()
        condition()

def semaphore():
    slots.acquire(), slots.acquire()

waits = {"queue": results.get, "event": loaded.wait, "barrier": meeting.wait, "nested": nested,
         "condition": condition, "semaphore": semaphore, "future": Future().result}
threading.Thread(target=load).start()
waits[sys.argv[1] if len(sys.argv) > 1 else "queue"]()
