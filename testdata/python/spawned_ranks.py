"""Ranks of PyTorch on gloo that no launcher started, and no variable names: spawned_ranks.py spawn|process|fork|healthy.

Rank and size are arguments of `init_process_group` alone. Rank 1 deadlocks by two Locks; the others are in all_reduce #4. Says READY with
rank and process id once each is there. Ranks are started by torch.multiprocessing.spawn, by multiprocessing.Process that executes Python
anew, and by one that forks; `healthy` is by spawn too and reduces for ever. Needs torch, which no test installs: scripts/check/torch-jobs runs it.
Ends itself after ten minutes.
"""

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist

WORLD = 3


def deadlock():
    data, model = threading.Lock(), threading.Lock()
    held = threading.Barrier(2)

    def feed():
        with data:
            held.wait()
            with model:
                pass

    with model:
        threading.Thread(target=feed, name="feeder").start()
        held.wait()
        with data:
            pass


def work(rank, port, scenario):
    signal.alarm(600)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD)
    x = torch.ones(1024)
    for _ in range(3):
        dist.all_reduce(x)
    # In one write: ranks share the output.
    os.write(1, f"READY {rank} {os.getpid()}\n".encode())
    while scenario == "healthy":
        time.sleep(0.005 * (rank + 1))
        dist.all_reduce(x)
    if rank == 1:
        deadlock()
    dist.all_reduce(x)


def main():
    scenario = sys.argv[1]
    signal.alarm(600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if scenario in ("spawn", "healthy"):
        torch.multiprocessing.spawn(work, args=(port, scenario), nprocs=WORLD)
        return
    context = multiprocessing.get_context("fork" if scenario == "fork" else "spawn")
    ranks = [context.Process(target=work, args=(rank, port, scenario)) for rank in range(WORLD)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()


if __name__ == "__main__":
    main()
