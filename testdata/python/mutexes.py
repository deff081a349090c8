"""Two threads in calls of testdata/native/mutexes_of_python.c: mutexes.py LIBRARY CALL CALL. It ends by itself after two minutes."""
import ctypes
import os
import signal
import sys
import threading

signal.alarm(120)
library = ctypes.CDLL(sys.argv[1])
threads = [threading.Thread(target=getattr(library, name), name=name) for name in sys.argv[2:]]
for thread in threads:
    thread.start()
print("READY pids=%d" % os.getpid(), flush=True)
for thread in threads:
    thread.join()
