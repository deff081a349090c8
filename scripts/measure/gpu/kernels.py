"""Kernels that never end, and errors of kernels, each with its truth: kernels.py CASE, or kernels.py --build FOLDER

As workloads.py, to which it adds what runs on the GPU: KERNELS says of each case which kernels a GPU core must have, by
name, and on which lines their warps are. The cases of kernels.cu are programs of C++, built into FOLDER; the others are of Python
and need the framework in their name."""
import os
import signal
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ENDS_AFTER = 300
KERNELS = {}
# What kernels.cu is built as: with lines, without, for debugging.
BUILDS = {"kernels": ["-lineinfo"], "kernels-without-lines": [], "kernels-debug": ["-G"]}
# A driver that dumps when asked dumps at an error too, unless this is said.
ONLY_WHEN_ASKED = {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "0"}


class Kernel:
    """A program and its truth: the kernels that run, and marks in the source (`file: text of the line`) where warps are."""

    def __init__(self, run, kernels, environment=None, needs=(), build=None):
        self.run, self.kernels, self.environment, self.needs, self.build = run, kernels, environment or {}, needs, build


def kernel(name, kernels, **truth):
    def register(function):
        KERNELS[name] = Kernel(function, kernels, **truth)
        return function
    return register


def cpp(name, kernels, case=None, build="kernels", **truth):
    KERNELS[name] = Kernel(None, kernels, build=(build, case or name), **truth)


cpp("spin-lock", ["adds_under_a_lock"])
cpp("lock-order-on-device", ["takes_two_locks"])
cpp("device-flag", ["waits_for_flag"])
cpp("host-flag-in-cpp", ["waits_for_flag"])
cpp("registered-flag", ["waits_for_flag"])
cpp("barrier", ["half_comes_to_the_barrier"])
cpp("grid-barrier", ["one_block_skips_the_grid_barrier"])
cpp("cooperative", ["occupies_multiprocessors", "all_blocks_meet"])
cpp("later-block", ["each_block_waits_for_the_next"])
cpp("cluster", ["half_of_a_cluster_waits"])
cpp("arrival", ["waits_for_an_arrival"])
cpp("calls", ["waits_in_a_call"])
cpp("two-streams", ["first_endless", "second_endless"])
cpp("event-of-another-stream", ["first_endless"])
cpp("one-queue", ["first_endless"], environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
cpp("two-contexts", ["first_endless", "second_endless"])
cpp("two-streams-eager", ["first_endless", "second_endless"], case="two-streams", environment={"CUDA_MODULE_LOADING": "EAGER"})
cpp("graph", ["first_endless"])
cpp("stream-waits-value", [])
cpp("refused-launch", [])
cpp("long-kernel", ["works_for"])
cpp("device-flag-without-lines", ["waits_for_flag"], case="device-flag", build="kernels-without-lines")
cpp("calls-debug", ["waits_in_a_call"], case="calls", build="kernels-debug")
for one in ("illegal-address", "illegal-address-beside", "misaligned", "assertion", "trap"):
    cpp(one, [])
    if one.startswith("illegal"):
        cpp(one + "-only-when-asked", [], case=one, environment=ONLY_WHEN_ASKED)


def numba_here():
    """Numba, which needs a name that newer NumPy has no more."""
    import numpy

    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack
    from numba import cuda
    return numpy, cuda


def ready():
    print("READY pids=%d" % os.getpid(), flush=True)


def returned(call, *arguments):
    """Call what waits, and say what became of it."""
    try:
        print("RETURNED %s" % call(*arguments), flush=True)
    except Exception as error:
        print("RETURNED %s" % str(error).splitlines()[0], flush=True)


@kernel("numba-flag", ["waits_for_flag"], needs=["numba"])
def numba_flag():
    """The loop that reads a flag which the compiler reads once."""
    numpy, cuda = numba_here()

    @cuda.jit(lineinfo=True)
    def waits_for_flag(flag, out):
        while flag[0] == 0:
            cuda.threadfence()
        out[cuda.grid(1)] = 1

    flag, out = cuda.to_device(numpy.zeros(1, numpy.int32)), cuda.to_device(numpy.zeros(256, numpy.int32))
    waits_for_flag[2, 128](flag, out)
    ready()
    returned(cuda.synchronize)


@kernel("numba-barrier", ["half_comes"], needs=["numba"])
def numba_barrier():
    """Without lines, as numba compiles by default."""
    numpy, cuda = numba_here()

    @cuda.jit
    def half_comes(flag):
        if cuda.threadIdx.x < 32:
            while cuda.atomic.add(flag, 0, 0) == 0:
                pass
        cuda.syncthreads()

    flag = cuda.to_device(numpy.zeros(1, numpy.int32))
    half_comes[1, 128](flag)
    ready()
    returned(flag.copy_to_host)


CUPY = r"""
extern "C" __global__ void waits_for_flag(const volatile int* flag, int* out) {
    while (*flag == 0) { }
    out[threadIdx.x] = *flag;
}
"""


@kernel("cupy-raw-kernel", ["waits_for_flag"], needs=["cupy"])
def cupy_raw_kernel():
    import cupy

    waits_for_flag = cupy.RawKernel(CUPY, "waits_for_flag", options=("-lineinfo",))
    flag, out = cupy.zeros(1, cupy.int32), cupy.zeros(64, cupy.int32)
    waits_for_flag((2,), (64,), (flag, out))
    ready()
    returned(cupy.cuda.Device().synchronize)


@kernel("cupy-elementwise", ["follows_the_chain"], needs=["cupy"])
def cupy_elementwise():
    """A chain that leads back to itself."""
    import cupy

    follow = cupy.ElementwiseKernel("raw int32 next, int32 start", "int32 end",
                                    "int at = start; while (next[at] >= 0) at = next[at]; end = at;", "follows_the_chain")
    chain = cupy.asarray([1, 2, 0], dtype=cupy.int32)
    end = follow(chain, cupy.zeros(4, cupy.int32))
    ready()
    returned(end.get)


@kernel("triton-lock", ["adds_under_a_lock"], needs=["triton", "torch"])
def triton_lock():
    import torch
    import triton_kernels

    lock, out = torch.ones(1, device="cuda", dtype=torch.int32), torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    triton_kernels.adds_under_a_lock[(4,)](lock, out, BLOCK=64)
    ready()
    returned(torch.cuda.synchronize)


@kernel("torch-sleep", ["spin_kernel"], needs=["torch"])
def torch_sleep():
    import torch

    torch.ones(4, device="cuda").sum().item()
    torch.cuda._sleep(1 << 50)
    ready()
    returned(torch.cuda.synchronize)


@kernel("torch-item", ["spin_kernel"], needs=["torch"])
def torch_item():
    """Where PyTorch waits most: in the copy of a number to the host. A second thread waits for its Lock."""
    import torch

    loss, lock_stats = torch.ones(4, device="cuda").sum(), threading.Lock()
    torch.cuda.synchronize()

    def report():
        with lock_stats:
            pass

    with lock_stats:
        threading.Thread(target=report, name="report", daemon=True).start()
        torch.cuda._sleep(1 << 50)
        ready()
        returned(loss.item)


@kernel("torch-kernel", ["waits_for_flag"], needs=["torch"])
def torch_kernel():
    import torch

    source = CUPY.replace('extern "C" ', "")
    waits_for_flag = torch.cuda._compile_kernel(source, "waits_for_flag")
    flag, out = torch.zeros(1, device="cuda", dtype=torch.int32), torch.zeros(64, device="cuda", dtype=torch.int32)
    torch.cuda.synchronize()
    waits_for_flag((2, 1, 1), (64, 1, 1), (flag, out))
    ready()
    returned(torch.cuda.synchronize)


@kernel("torch-autograd", [], needs=["torch"])
def torch_autograd():
    """backward() under a Lock that a hook needs: the hook runs on the engine's thread of the device."""
    import torch

    lock_stats = threading.Lock()
    x = torch.ones(8, device="cuda", requires_grad=True)
    y = (x * 2).sum()

    def hook(grad):
        ready()
        with lock_stats:
            return grad

    x.register_hook(hook)
    with lock_stats:
        y.backward()


@kernel("jax-while", None, needs=["jax"])
def jax_while():
    """A loop whose condition stays true: kernels that end, one after the other."""
    import jax

    forever = jax.jit(lambda x: jax.lax.while_loop(lambda state: state[0] > 0, lambda state: (state[0], state[1] + 1), (x, x)))
    compiled = forever.lower(1.0).compile()
    result = compiled(1.0)
    ready()
    returned(lambda: result[1].block_until_ready())


@kernel("jax-callback", [], needs=["jax"])
def jax_callback():
    """A callback that needs a Lock of the thread which waits for the result."""
    import jax
    import numpy

    lock_stats, entered = threading.Lock(), threading.Event()

    def callback(value):
        entered.set()
        with lock_stats:
            return numpy.float32(value)

    @jax.jit
    def step(x):
        return jax.pure_callback(callback, jax.ShapeDtypeStruct((), numpy.float32), x * 2)

    with lock_stats:
        def announce():
            entered.wait()
            ready()
        threading.Thread(target=announce, daemon=True).start()
        returned(lambda: step(1.0).block_until_ready())


def build(folder):
    source = os.path.join(HERE, "kernels.cu")
    running = [subprocess.Popen(["nvcc", "-arch=sm_90", "-std=c++17", "-g"] + flags + ["-o", os.path.join(folder, name), source, "-lcuda"])
               for name, flags in BUILDS.items()]
    return [one.wait() for one in running]


if __name__ == "__main__":
    signal.alarm(ENDS_AFTER)
    if sys.argv[1] == "--build":
        os.makedirs(sys.argv[2], exist_ok=True)
        sys.exit(any(build(sys.argv[2])))
    one = KERNELS[sys.argv[1]]
    if one.build:
        program = os.path.join(os.environ["KERNELS"], one.build[0])
        os.execv(program, [program, one.build[1]])
    one.run()
    threading.Event().wait()
