"""A shop in which orders and refunds take two locks in different orders: the example of README.md. It says READY before it hangs."""
import os
import signal
import threading
import types

signal.alarm(120)
inventory, billing = (types.SimpleNamespace(lock=threading.Lock()) for _ in range(2))
both_have_one = threading.Barrier(3)


def place_order():
    with inventory.lock:
        both_have_one.wait()
        with billing.lock:
            print("sold")


def refund():
    with billing.lock:
        both_have_one.wait()
        with inventory.lock:
            print("refunded")


threads = [threading.Thread(target=one, name=name) for one, name in ((place_order, "orders"), (refund, "refunds"))]
for thread in threads:
    thread.start()
both_have_one.wait()
print(f"READY pids={os.getpid()}", flush=True)
for thread in threads:
    thread.join()
