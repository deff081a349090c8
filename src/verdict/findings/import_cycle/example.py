"""The body of a module waits for a thread that imports the module."""
import threading


def load():
    import import_cycle  # waits until the body below has run

    return import_cycle.SIZE


thread = threading.Thread(target=load)
thread.start()
thread.join()
SIZE = 4
