"""Two ranks use two communicators in different orders: it works until launches wait for kernels."""
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
numbers = [torch.ones(1, device="cuda"), torch.ones(1, device="cuda")]
order = [0, 1] if rank == 0 else [1, 0]
for which in 0, 1:  # makes the communicators, in one order
    dist.all_reduce(numbers[which], group=groups[which])
torch.cuda.synchronize()
pending = [dist.all_reduce(numbers[which], group=groups[which], async_op=True) for which in order]
for work in pending:
    work.wait()
torch.cuda.synchronize()
