"""Ranks of a job without any library: a token goes round over TCP, and rank 1 deadlocks by itself: ring_of_ranks.py FOLDER [SIZE ADDRESS],
under srun, or as an index of a job of Kubernetes. With FOLDER healthy it goes round for ever.

Each rank writes its address, and once it has both connections a file `ready`, into the folder. Rank 1 holds the Lock `gate` and joins a
thread that wants it, the next rank waits for its token, and so on. An alarm ends it.
"""

import os
import signal
import socket
import sys
import threading
from pathlib import Path

healthy = sys.argv[2:] == ["healthy"]
if len(sys.argv) > 3:
    rank, size, address = int(os.environ["JOB_COMPLETION_INDEX"]), int(sys.argv[2]), sys.argv[3]
else:
    rank, size, address = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"]), "127.0.0.1"
folder = Path(sys.argv[1])
gate = threading.Lock()


def save():
    with gate:
        pass


def address_of(other):
    path = folder / f"address-{other}"
    while not path.exists():
        threading.Event().wait(0.05)
    host, port = path.read_text().split()
    return host, int(port)


def turn(left, right):
    token = left.recv(1)
    right.sendall(token)


signal.alarm(300)
server = socket.create_server((address, 0))
written = folder / f"{rank}.new"
written.write_text(f"{address} {server.getsockname()[1]}")
written.rename(folder / f"address-{rank}")
right = socket.create_connection(address_of((rank + 1) % size))
left, _ = server.accept()
(folder / f"ready-{rank}").touch()
if rank == 0:
    right.sendall(b"x")
if rank == 1 and not healthy:
    saver = threading.Thread(target=save, name="saver")
    with gate:
        saver.start()
        saver.join()
while True:
    turn(left, right)
