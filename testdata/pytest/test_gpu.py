"""A test in which the main thread can run no Python, beside a thread that does what NVIDIA's driver does: it makes a FIFO and writes a
core when a byte comes through that, and ends the process. For pytest 7 to 9."""

import ctypes
import os
import shutil
import signal
import threading


def place(variable):
    return os.environ[variable].replace("%p", str(os.getpid()))


def test_sleeps_in_native_code():
    is_wanted = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP" in os.environ
    ready = threading.Event()

    def drive():
        if is_wanted:
            os.mkfifo(place("CUDA_COREDUMP_PIPE"), 0o640)
            pipe = os.open(place("CUDA_COREDUMP_PIPE"), os.O_RDWR)
        ready.set()
        if is_wanted:
            os.read(pipe, 1)
            shutil.copyfile(os.environ["CORE"], place("CUDA_COREDUMP_FILE"))
            os.abort()

    threading.Thread(target=drive, daemon=True).start()
    ready.wait()
    # No signal has it run Python, and what sleeps for a time is no hang: only its time limit ends it.
    signal.pthread_sigmask(signal.SIG_BLOCK, set(range(1, 65)) - {signal.SIGHUP})
    ctypes.CDLL(None).sleep(100)
