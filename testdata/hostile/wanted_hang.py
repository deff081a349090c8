"""Tests of a deadlock in a child or a thread, as suites have them, which a limit of time of their own ends. usage: wanted_hang.py
run | alarm | mp | lock_alarm | faulthandler"""

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

SECONDS = 9
DEAD = """
import threading, time
ledger, journal = threading.Lock(), threading.Lock()
def other():
    with journal:
        time.sleep(0.2)
        ledger.acquire()
threading.Thread(target=other).start()
ledger.acquire()
time.sleep(0.2)
journal.acquire()
"""


class TookTooLong(Exception):
    pass


def give_up(signal_number, frame):
    raise TookTooLong


def twice():
    lock = multiprocessing.Lock()
    lock.acquire()
    lock.acquire()


how = sys.argv[1]
signal.signal(signal.SIGALRM, give_up)
if how == "run":
    try:
        subprocess.run([sys.executable, "-c", DEAD], timeout=SECONDS)
    except subprocess.TimeoutExpired:
        sys.exit(0)
elif how == "alarm":
    signal.alarm(SECONDS)
    child = subprocess.Popen([sys.executable, "-c", DEAD])
    try:
        child.wait()
    except TookTooLong:
        child.kill()
        sys.exit(0)
elif how == "mp":
    child = multiprocessing.get_context("fork").Process(target=twice)
    child.start()
    child.join(SECONDS)
    child.kill()
    child.join()
    sys.exit(0)
elif how == "lock_alarm":
    signal.alarm(SECONDS)
    lock = threading.Lock()
    lock.acquire()
    try:
        lock.acquire()
    except TookTooLong:
        os._exit(0)
elif how == "faulthandler":
    faulthandler.dump_traceback_later(SECONDS, exit=True, file=open(os.devnull, "w"))
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
sys.exit(5)
