"""Ranks of a job without any library: a token goes round over TCP, and rank 1 deadlocks by itself: ring_of_ranks.py FOLDER, under srun.

Each rank writes its port, and once it has both connections a file `ready`, into the folder. Rank 1 holds the Lock `gate` and joins a
thread that wants it, rank 2 waits for its token, and rank 0 for that of rank 2. An alarm ends it.
"""

import os
import signal
import socket
import sys
import threading
from pathlib import Path

rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
folder = Path(sys.argv[1])
gate = threading.Lock()


def save():
    with gate:
        pass


def port_of(other):
    path = folder / f"port-{other}"
    while not path.exists():
        threading.Event().wait(0.05)
    return int(path.read_text())


def turn(left, right):
    token = left.recv(1)
    right.sendall(token)


signal.alarm(300)
server = socket.create_server(("127.0.0.1", 0))
written = folder / f"{rank}.new"
written.write_text(str(server.getsockname()[1]))
written.rename(folder / f"port-{rank}")
right = socket.create_connection(("127.0.0.1", port_of((rank + 1) % size)))
left, _ = server.accept()
(folder / f"ready-{rank}").touch()
if rank == 0:
    right.sendall(b"x")
if rank == 1:
    saver = threading.Thread(target=save, name="saver")
    with gate:
        saver.start()
        saver.join()
while True:
    turn(left, right)
