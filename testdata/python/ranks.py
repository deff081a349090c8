"""Four ranks of PyTorch on gloo that hang between each other, or do not: torchrun --nproc-per-node 4 ranks.py SCENARIO.

Needs torch, which no test installs: scripts/check/torch-jobs runs it and keeps the digests of its ranks in testdata/jobs/gloo. The
truth of each scenario stands in SCENARIOS. Ends itself after ten minutes.
"""

import datetime
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

SCENARIOS = {
    "lock": "rank 3 deadlocks by two Locks; the others are in all_reduce #4, which it has never enqueued",
    "skipped": "rank 2 is in barrier #4, the others in all_reduce #4",
    "mismatch": "rank 1 is in broadcast #4, the others in all_reduce #4",
    "groups": "ranks 0 and 2 are in all_reduce #1 of a group, 1 and 3 in #4 of that of all ranks",
    "receive": "ranks 0 and 1 receive from each other, with tag 5; 2 and 3 are in barrier #4",
    "store": "rank 0 waits for a key of the store that nobody sets; the others are in barrier #4",
    "loader": "rank 1 waits for a worker of its DataLoader, which sleeps in __getitem__; the others are in all_reduce #6",
    "absent": "rank 3 sleeps; the others are in init_process_group",
    "reduce": "healthy: all_reduces, between which each rank computes for a while",
    "large": "healthy: all_reduces of 200 MB",
    "ring": "healthy: each rank sends to the next one and receives from the one before",
}

scenario = sys.argv[1]
assert scenario in SCENARIOS, scenario
signal.alarm(600)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def ready():
    print(f"READY {rank} {os.getpid()}", flush=True)


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


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5 and rank == 1:
            time.sleep(600)
        return torch.ones(4)


if scenario == "absent":
    ready()
    if rank == 3:
        time.sleep(600)
dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
others = dist.new_group(list(range(world)))
x = torch.ones(1024)
for _ in range(3):
    dist.all_reduce(x)
ready()
if scenario == "lock":
    if rank == 3:
        deadlock()
    dist.all_reduce(x)
elif scenario == "skipped":
    if rank != 2:
        dist.all_reduce(x)
    dist.barrier()
elif scenario == "mismatch":
    if rank == 1:
        dist.broadcast(x, src=0)
    else:
        dist.all_reduce(x)
    dist.barrier()
elif scenario == "groups":
    first, second = (others, None) if rank % 2 == 0 else (None, others)
    dist.all_reduce(x, group=first)
    dist.all_reduce(x, group=second)
elif scenario == "receive":
    if rank < 2:
        dist.recv(x, src=1 - rank, tag=5)
    dist.barrier()
elif scenario == "store":
    if rank == 0:
        store = dist.distributed_c10d._get_default_store()
        store.wait(["epoch/7/done"], datetime.timedelta(minutes=30))
    dist.barrier()
elif scenario == "loader":
    for batch in torch.utils.data.DataLoader(Slow(), batch_size=2, num_workers=2):
        dist.all_reduce(x)
elif scenario == "reduce":
    while True:
        time.sleep(0.005 * (rank + 1))
        dist.all_reduce(x)
elif scenario == "large":
    large = torch.ones(50_000_000)
    while True:
        dist.all_reduce(large)
elif scenario == "ring":
    while True:
        sent = dist.isend(x, dst=(rank + 1) % world, tag=3)
        dist.recv(x, src=(rank - 1) % world, tag=3)
        sent.wait()
