"""Two groups in two orders, and each rank waits in its first one (run it with `--gpu-core`)."""
import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
x = torch.ones(1 << 20, device="cuda")
one, other = dist.new_group([0, 1]), dist.new_group([0, 1])
for group in (one, other):
    dist.all_reduce(x, group=group)
torch.cuda.synchronize()
if rank == 0:
    dist.all_reduce(x, group=one)
    torch.cuda.synchronize()
    dist.broadcast(x, 0, group=other)
else:
    dist.broadcast(x, 0, group=other)
    torch.cuda.synchronize()
    dist.all_reduce(x, group=one)
torch.cuda.synchronize()
