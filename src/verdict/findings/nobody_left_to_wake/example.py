"""A thread dies of an error before it puts what another one waits for."""
import queue
import threading

results = queue.Queue()


def load():
    results.put(int("not a number"))


threading.Thread(target=load).start()
print(results.get())
