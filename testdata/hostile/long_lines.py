"""Threads deep in a recursion of a function with a quarter of a million lines, which calls itself at many of these."""

import os
import signal
import sys
import threading

signal.alarm(120)
THREADS, DEPTH, LINES, PLACES = 4, 20_000, 250_000, 500
WAYS = "".join(f"    if n % {PLACES} == {place}:\n        return deep(n - 1)\n" for place in range(PLACES))
SOURCE = f"def deep(n):\n    if n < 0:\n{'        n = n' + chr(10)}{('        n = n' + chr(10)) * LINES}    if n == 0:\n        return wait()\n{WAYS}"

ready, never = threading.Semaphore(0), threading.Lock()
never.acquire()


def wait():
    ready.release()
    never.acquire()


space = {"wait": wait}
exec(compile(SOURCE, "long_lines", "exec"), space)
sys.setrecursionlimit(1_000_000)
threading.stack_size(256 << 20)
for _ in range(THREADS):
    threading.Thread(target=space["deep"], args=(DEPTH,), daemon=True).start()
for _ in range(THREADS):
    ready.acquire()
print(f"READY pids={os.getpid()}", flush=True)
never.acquire()
