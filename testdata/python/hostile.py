"""Two threads that wait for each other's lock, all of whose names are made to harm whoever shows them.

Prints "READY pids=P" just before the last step and ends by SIGALRM after two minutes. Names of threads, files, functions, classes
and values of variables carry markup, quotes, control characters, terminal escapes, marks that reorder lines, and are as
long as 64 KiB; the kernel's names of threads are not UTF-8.
"""

import os
import signal
import threading

MARKUP = "</title></style><script>document.title=window.__pwned=1</script><img src=x onerror=__pwned=1>]]>&\"'`"
ODD = MARKUP + "\x1b[31m\x1b]0;title\x07\x00\r\n\u202e\u2066\u061c\uffff\udcff"
LONG = ODD * ((64 << 10) // len(ODD))

SOURCE = """
def step(first, second, both):
    text, number = TEXT, 7
    value = type(CLASS, (), {})()
    with first:
        both.wait()
        with second:
            pass
"""


def function(file, name):
    """The function of SOURCE, from such a file and of such a name."""
    names = {"TEXT": LONG, "CLASS": MARKUP}
    exec(compile(SOURCE, file, "exec"), names)
    code = names["step"].__code__
    replaced = {"co_name": name}
    if hasattr(code, "co_qualname"):
        replaced["co_qualname"] = name
    names["step"].__code__ = code.replace(**replaced)
    return names["step"]


def name_for_kernel(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "wb") as comm:
        comm.write(name)


def thread(number, work, *words):
    def run():
        name_for_kernel(b"<b>\xff\x1b[31m\"&" + str(number).encode())
        work(*words)

    one = threading.Thread(target=run, name=LONG if number else ODD.replace("\udcff", ""), daemon=True)
    one.start()
    return one


signal.alarm(120)
print(f"READY pids={os.getpid()}", flush=True)
left, right, both = threading.RLock(), threading.RLock(), threading.Barrier(2)
threads = [
    thread(0, function("/tmp/" + MARKUP.replace("/", "|") + ".py", ODD.replace("\x00", "").replace("\udcff", "")), left, right, both),
    thread(1, function(LONG.replace("\x00", "").replace("\udcff", ""), LONG.replace("\x00", "").replace("\udcff", "")), right, left, both),
]
for one in threads:
    one.join()
