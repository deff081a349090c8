"""A collective in a branch that only one of two ranks takes."""
import time

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
loss = torch.ones(1, device="cuda")
dist.all_reduce(loss)
if rank == 0:
    dist.all_reduce(loss)
    print(loss.item())
else:
    time.sleep(3600)  # it loads data, waits for a lock, or writes a checkpoint
