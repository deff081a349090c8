"""A test in which no line of Python can run any more: its process must be ended. For pytest 7 to 9."""

import ctypes
import os


def test_passes():
    pass


def test_fails():
    print("words of a failed test")
    assert 1 == 2


def test_waits_in_native_code():
    print("words before the hang")
    # PyDLL keeps the GIL, CDLL lets another thread have it.
    library = (ctypes.PyDLL if "KEEPS_GIL" in os.environ else ctypes.CDLL)(None)
    mutex = (ctypes.c_ulonglong * 16)()
    library.pthread_mutex_init(mutex, None)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def test_does_not_run():
    pass


def test_is_the_last():
    pass
