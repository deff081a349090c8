"""A kernel of Triton, which compiles only functions of a file."""
import triton
import triton.language as tl


@triton.jit
def acquire(lock):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass


@triton.jit
def adds_under_a_lock(lock, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    acquire(lock)
    tl.store(out + offsets, tl.load(out + offsets) + 1)
    tl.atomic_xchg(lock, 0)
