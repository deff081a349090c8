"""Hangs of two ranks over NCCL, each with its truth: ranks.py CASE

Starts a process a rank, prints READY with both when nothing can keep them from hanging any more, and ends by an alarm. RANKS says
of each case which collective each rank's GPU is in, None where it has none. Needs PyTorch and two GPUs."""
import os
import signal
import subprocess
import sys
import threading

ENDS_AFTER = 300
RANKS = {}


# Without direct ways between GPUs NCCL makes its connections by sockets, when a message is first sent that way.
BY_SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket"}


class Ranks:
    def __init__(self, run, collectives, environment, connected):
        self.run, self.collectives, self.environment, self.connected = run, collectives, environment, connected


def ranks(name, *collectives, environment=None, connected=True):
    """A case. `connected` says that the ranks have a communicator of NCCL's, and have used it."""
    def register(function):
        RANKS[name] = Ranks(function, collectives, environment or {}, connected)
        return function
    return register


def ready():
    print("READY", flush=True)


@ranks("nccl-missing-rank", "AllReduce", None)
def missing_rank(rank, dist, torch, x):
    if rank == 1:
        gate = threading.Lock()

        def feed():
            with gate:
                pass

        gate.acquire()
        threading.Thread(target=feed, name="feeder", daemon=True).start()
        ready()
        threading.Event().wait()
    ready()
    dist.all_reduce(x)
    torch.cuda.synchronize()


def deadlock():
    """Two Locks in two orders."""
    stats, queue = threading.Lock(), threading.Lock()
    both = threading.Barrier(2)

    def take(first, second):
        with first:
            both.wait()
            if threading.current_thread() is threading.main_thread():
                ready()
            with second:
                pass

    threading.Thread(target=take, args=(queue, stats), name="prefetch", daemon=True).start()
    take(stats, queue)


@ranks("nccl-rank-in-deadlock", "AllReduce", None)
def rank_in_deadlock(rank, dist, torch, x):
    """Rank 1 is in a deadlock; rank 0 waits for it."""
    if rank == 1:
        deadlock()
    ready()
    dist.all_reduce(x)
    torch.cuda.synchronize()


@ranks("nccl-mismatch", "AllReduce", "AllGather")
def mismatch(rank, dist, torch, x):
    ready()
    if rank == 0:
        dist.all_reduce(x)
    else:
        dist.all_gather_into_tensor(torch.empty(2 * x.numel(), device="cuda"), x)
    torch.cuda.synchronize()


@ranks("nccl-both-receive", "SendRecv", "SendRecv")
def both_receive(rank, dist, torch, x):
    ready()
    dist.recv(x, 1 - rank)
    torch.cuda.synchronize()


@ranks("nccl-two-orders", "AllReduce", "Broadcast")
def two_orders(rank, dist, torch, x):
    """Two groups, used in one order by rank 0 and in the other by rank 1, and each waits for the first."""
    one, other = dist.new_group([0, 1]), dist.new_group([0, 1])
    for group in (one, other):
        dist.all_reduce(x, group=group)
    torch.cuda.synchronize()
    ready()
    if rank == 0:
        dist.all_reduce(x, group=one)
        torch.cuda.synchronize()
        dist.broadcast(x, 0, group=other)
    else:
        dist.broadcast(x, 0, group=other)
        torch.cuda.synchronize()
        dist.all_reduce(x, group=one)
    torch.cuda.synchronize()


@ranks("nccl-kernel-before", "spin_kernel", "AllReduce")
def kernel_before(rank, dist, torch, x):
    """Rank 0 comes to the collective, but a kernel before it in its stream never ends."""
    ready()
    if rank == 0:
        torch.cuda._sleep(1 << 50)
    dist.all_reduce(x)
    torch.cuda.synchronize()


@ranks("nccl-first-collective", None, None, connected=False)
def first_collective(rank, dist, torch, x):
    """Rank 1 does not come to the first collective, in which NCCL's communicator is made."""
    if rank == 1:
        deadlock()
    ready()
    dist.all_reduce(x)


@ranks("nccl-new-group", None, None)
def new_group(rank, dist, torch, x):
    """Rank 1 does not come to the making of a group."""
    if rank == 1:
        deadlock()
    ready()
    dist.new_group([0, 1])


@ranks("nccl-both-receive-by-sockets", None, None, environment=BY_SOCKETS)
def both_receive_by_sockets(rank, dist, torch, x):
    """Each rank waits within NCCL until the other connects to send: nothing is given to a GPU."""
    ready()
    dist.recv(x, 1 - rank)
    torch.cuda.synchronize()


def run_rank(case, rank):
    os.environ.update(RANKS[case].environment)
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    connected = RANKS[case].connected
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank) if connected else None)
    x = torch.ones(1 << 20, device="cuda")
    if connected:
        dist.all_reduce(x)
    torch.cuda.synchronize()
    try:
        RANKS[case].run(rank, dist, torch, x)
    except Exception as error:
        print("RETURNED rank %d: %s" % (rank, str(error).splitlines()[0]), flush=True)
    threading.Event().wait()


def start(case):
    environment = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    processes = []
    for rank in range(2):
        own = dict(environment, RANK=str(rank), LOCAL_RANK=str(rank))
        processes.append(subprocess.Popen([sys.executable, "-u", os.path.abspath(__file__), case, str(rank)], env=own, stdout=subprocess.PIPE))
    for process in processes:
        while process.stdout.readline().strip() != b"READY":
            pass
    print("READY pids=%s" % ",".join(str(process.pid) for process in processes), flush=True)
    for process in processes:
        sys.stdout.buffer.write(process.stdout.read())
        sys.stdout.flush()
        process.wait()


if __name__ == "__main__":
    signal.alarm(ENDS_AFTER)
    if len(sys.argv) > 2:
        run_rank(sys.argv[1], int(sys.argv[2]))
    else:
        start(sys.argv[1])
