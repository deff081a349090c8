"""A test that does to its own process, and by that to lockscope's plugin, what ATTACK says; then tests that go on, and with HANG one that
hangs. The suite ends with the plugin as it ends without it."""

import ctypes
import json
import os
import signal
import struct
import threading

import pytest

signal.alarm(120)
ATTACK = os.environ["ATTACK"]
#: Numbers of system calls on AMD64, and on others: getpid, pread64, gettid, prctl, kill.
FORBIDDEN = [39, 17, 186, 157, 62] if os.uname().machine == "x86_64" else [172, 67, 178, 167, 129]
OWN = []


def set_filter(numbers):
    """A filter that ends the process for these calls."""
    rows = [(0x20, 0, 0, 0)] + [row for number in numbers for row in ((0x15, 0, 1, number), (0x06, 0, 0, 0x80000000))]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows + [(0x06, 0, 0, 0x7FFF0000)]))
    program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(rows) + 1, ctypes.addressof(code)))
    libc = ctypes.CDLL(None)
    assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0


def refuse(*_arguments, **_named):
    raise RuntimeError("a test has replaced it")


def test_attacks():
    if ATTACK == "filter":
        set_filter(FORBIDDEN)
    elif ATTACK == "replaced":
        for name in ("write", "fstat", "getpid", "read", "lseek"):
            setattr(os, name, refuse)
        json.dumps = json.loads = refuse
    elif ATTACK == "fork":
        child = ctypes.CDLL(None).fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    elif ATTACK == "descriptors":
        # Those of lockscope become one file of the test's; with --capture=sys pytest has none but the standard ones.
        kept = os.memfd_create("of a test")
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number != kept and is_of_lockscope(number):
                os.dup2(kept, number)
        OWN.append(kept)


def is_of_lockscope(number):
    standard = [os.readlink(f"/proc/self/fd/{own}") for own in (1, 2)]
    try:
        name = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return False
    return name.startswith(("pipe:", "/memfd:lockscope")) and name not in standard


@pytest.mark.parametrize("number", range(3))
def test_goes_on(number):
    # Nothing of lockscope's goes into files of the tests.
    assert all(os.fstat(file).st_size == 0 for file in OWN)


@pytest.mark.skipif("HANG" not in os.environ, reason="not asked for")
def test_hangs():
    first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def other():
        with second:
            both.wait()
            with first:
                pass

    threading.Thread(target=other, daemon=True).start()
    with first:
        both.wait()
        with second:
            pass


def test_is_the_last():
    pass
