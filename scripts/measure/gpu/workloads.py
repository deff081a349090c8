"""Programs that hang around a GPU, each with its truth: workloads.py CASE

Each prints READY with the processes to look at when nothing can keep it from hanging any more, and ends by an alarm.
CASES says of each what a report must say; table.py runs them all under lockscope. Needs an NVIDIA GPU and its driver;
the cases of a framework need that framework, the cases of several ranks several GPUs.

Two loads of the driver's library matter here: ctypes.CDLL gives the GIL up around a call, ctypes.PyDLL keeps it."""
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

ENDS_AFTER = 300
HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {}


class Case:
    """A program and its truth: verdicts that are right, findings that must be there, names around the cycle."""

    def __init__(self, run, verdicts, findings, cycle=None, environment=None, devices=1, words=(), needs=(), recorded=False):
        self.run, self.verdicts, self.findings, self.cycle = run, verdicts, findings, cycle
        self.environment, self.devices, self.words, self.needs = environment or {}, devices, words, needs
        self.recorded = recorded  # what is true of it only lockscope's recorder has seen


def case(name, verdicts, findings=(), **truth):
    def register(function):
        CASES[name] = Case(function, verdicts, findings, **truth)
        return function
    return register


def ready(*pids):
    print("READY pids=%s" % ",".join(str(pid) for pid in pids or (os.getpid(),)), flush=True)


def keep_the_gil():
    """A thread that has the GIL keeps it until it blocks: whoever it wakes can't come between."""
    sys.setswitchinterval(ENDS_AFTER)


PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry empty() { ret; }
.visible .entry endless() { again: bra again; }
.visible .entry until_flag(.param .u64 flag) {
    .reg .u64 %address; .reg .u32 %value; .reg .pred %unset;
    ld.param.u64 %address, [flag];
again:
    ld.volatile.global.u32 %value, [%address];
    setp.eq.u32 %unset, %value, 0;
    @%unset bra again;
    ret;
}
.visible .entry wrong_address() {
    .reg .u64 %address; .reg .u32 %value;
    mov.u64 %address, 16;
    st.global.u32 [%address], 1;
    ret;
}
"""
MORE_PTX = PTX.replace(b"empty", b"another").replace(b"endless", b"second").replace(b"until_flag", b"third")
SCHEDULE_YIELD, SCHEDULE_BLOCKING = 2, 4
BlockToShared = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)
HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CudaError(RuntimeError):
    """What a call of the driver returned."""


class Driver:
    """The driver's API by ctypes, on the primary context of device 0."""

    def __init__(self, schedule=0):
        self.releasing, self.holding = ctypes.CDLL("libcuda.so.1"), ctypes.PyDLL("libcuda.so.1")
        device = ctypes.c_int()
        self.context, self.module, self.stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self("cuInit", 0)
        self("cuDeviceGet", ctypes.byref(device), 0)
        if schedule:
            self("cuDevicePrimaryCtxSetFlags_v2", device, schedule)
        self("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.enter()
        self("cuModuleLoadData", ctypes.byref(self.module), PTX)
        self("cuStreamCreate", ctypes.byref(self.stream), 1)

    def __call__(self, name, *arguments, holding=False):
        result = getattr(self.holding if holding else self.releasing, name)(*arguments)
        if result:
            raise CudaError("%s: error %d" % (name, result))

    def enter(self):
        """Make the context this thread's."""
        self("cuCtxSetCurrent", self.context)

    def function(self, name, module=None):
        function = ctypes.c_void_p()
        self("cuModuleGetFunction", ctypes.byref(function), module or self.module, name)
        return function

    def launch(self, function, *arguments, stream=None, holding=False):
        values = (ctypes.c_void_p * max(len(arguments), 1))(*[ctypes.addressof(argument) for argument in arguments])
        self("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream or self.stream, values, None, holding=holding)

    def event(self, flags=0):
        """An event behind what is in the stream now."""
        event = ctypes.c_void_p()
        self("cuEventCreate", ctypes.byref(event), flags)
        self("cuEventRecord", event, self.stream)
        return event

    def flag(self):
        """A word of the host that the device sees, and its address there."""
        memory, there = ctypes.c_void_p(), ctypes.c_uint64()
        self("cuMemHostAlloc", ctypes.byref(memory), ctypes.c_size_t(4096), 2)
        self("cuMemHostGetDevicePointer_v2", ctypes.byref(there), memory, 0)
        word = ctypes.cast(memory, ctypes.POINTER(ctypes.c_uint32))
        word[0] = 0
        return word, there


# The deadlock of 2019: the driver holds a lock of the context for writing while it calls the block-size callback.

def occupancy(call):
    keep_the_gil()
    driver = Driver()
    empty = driver.function(b"empty")
    entered, go = threading.Event(), threading.Event()

    @BlockToShared
    def shared_memory_per_block(block):
        entered.set()
        go.wait()
        return 0

    def query_occupancy():
        driver.enter()
        grid, block = ctypes.c_int(), ctypes.c_int()
        driver("cuOccupancyMaxPotentialBlockSize", ctypes.byref(grid), ctypes.byref(block), empty,
               shared_memory_per_block, ctypes.c_size_t(0), 0)

    memory, buffer, another = ctypes.c_uint64(), ctypes.create_string_buffer(64), ctypes.c_void_p()
    driver("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(64))
    driver.launch(empty)
    driver("cuCtxSynchronize")
    threading.Thread(target=query_occupancy, name="occupancy").start()
    entered.wait()
    ready()
    go.set()
    if call == "launch":
        driver.launch(empty, holding=True)
    elif call == "alloc":
        driver("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 20), holding=True)
    elif call == "memcpy":
        driver("cuMemcpyHtoD_v2", memory, buffer, ctypes.c_size_t(64), holding=True)
    else:
        driver("cuModuleLoadData", ctypes.byref(another), MORE_PTX, holding=True)


for one in ("launch", "alloc", "memcpy", "module"):
    case("occupancy-" + one, ["deadlock"], ["gil-vs-driver-callback"], cycle=["MainThread", "occupancy"])(
        lambda call=one: occupancy(call))


# A host function in Python, and whoever holds the GIL waits for the GPU.

def host_function(wait, schedule=0):
    keep_the_gil()
    driver = Driver(schedule)
    entered, go = threading.Event(), threading.Event()
    memory = ctypes.c_uint64()
    runtime = ctypes.PyDLL(runtime_library()) if wait == "runtime" else None
    driver("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 20))

    @HostFunction
    def report_progress(_):
        entered.set()
        go.wait()

    driver("cuLaunchHostFunc", driver.stream, report_progress, None)
    event = driver.event(1 if schedule == SCHEDULE_BLOCKING else 0)
    entered.wait()
    ready()
    go.set()
    if wait == "stream":
        driver("cuStreamSynchronize", driver.stream, holding=True)
    elif wait == "context":
        driver("cuCtxSynchronize", holding=True)
    elif wait == "event":
        driver("cuEventSynchronize", event, holding=True)
    elif wait == "free":
        driver("cuMemFree_v2", memory, holding=True)
    else:
        if runtime.cudaStreamSynchronize(driver.stream):
            raise CudaError("cudaStreamSynchronize")


def runtime_library():
    """libcudart as the wheels of NVIDIA bring it, or as the system has it."""
    for folder in sys.path:
        for name in ("nvidia/cu13/lib/libcudart.so.13", "nvidia/cuda_runtime/lib/libcudart.so.12"):
            if os.path.exists(os.path.join(folder, name)):
                return os.path.join(folder, name)
    return "libcudart.so"


HOST_FUNCTION = dict(verdicts=["suspected-deadlock", "deadlock"], findings=["gil-vs-host-function"])
for one in ("stream", "context", "event", "free"):
    case("hostfunc-" + one, **HOST_FUNCTION)(lambda wait=one: host_function(wait))
case("hostfunc-runtime", needs=["runtime"], **HOST_FUNCTION)(lambda: host_function("runtime"))
case("hostfunc-stream-yields", **HOST_FUNCTION)(lambda: host_function("stream", SCHEDULE_YIELD))
case("hostfunc-stream-sleeps", **HOST_FUNCTION)(lambda: host_function("stream", SCHEDULE_BLOCKING))
case("hostfunc-event-sleeps", **HOST_FUNCTION)(lambda: host_function("event", SCHEDULE_BLOCKING))


# The frameworks give the GIL up while they wait. A lock of the program's own closes the circle all the same.

def with_lock(launch, synchronize):
    gate, entered = threading.Lock(), threading.Event()

    def needs_the_gate(*_):
        entered.set()
        with gate:
            pass

    with gate:
        launch(needs_the_gate)
        entered.wait()
        ready()
        synchronize()


LOCK = dict(verdicts=["suspected-deadlock", "deadlock"], findings=["lock-order-cycle"])


@case("cupy-lock", needs=["cupy"], **LOCK)
def cupy_lock():
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    with_lock(lambda function: stream.launch_host_func(function, None), stream.synchronize)


@case("numba-lock", needs=["numba"], **LOCK)
def numba_lock():
    from numba import cuda

    stream = cuda.stream()
    driver, kept = ctypes.CDLL("libcuda.so.1"), []

    def launch(function):
        # Stream.add_callback of numba-cuda 0.3 fails with NVIDIA's bindings: 'CUstream' object has no attribute 'value'.
        kept.append(HostFunction(function))
        driver.cuLaunchHostFunc(ctypes.c_void_p(int(stream.handle)), kept[0], None)

    with_lock(launch, stream.synchronize)


@case("torch-lock", needs=["torch"], **LOCK)
def torch_lock():
    import torch

    stream = torch.cuda.Stream()
    driver, kept = ctypes.CDLL("libcuda.so.1"), []

    def launch(function):
        kept.append(HostFunction(function))
        driver.cuLaunchHostFunc(ctypes.c_void_p(stream.cuda_stream), kept[0], None)

    with_lock(launch, torch.cuda.synchronize)


# Nothing on the CPU is behind it.

WAITS_FOR_GPU = dict(verdicts=["blocked"], findings=["waiting-for-gpu"])


@case("endless-kernel", **WAITS_FOR_GPU)
def endless_kernel():
    driver = Driver()
    driver.launch(driver.function(b"endless"))
    event = driver.event(1)
    entered = threading.Semaphore(0)

    def wait(name, handle):
        driver.enter()
        entered.release()
        driver(name, handle)

    for name, handle in (("cuStreamSynchronize", driver.stream), ("cuEventSynchronize", event)):
        threading.Thread(target=wait, args=(name, handle), name=name, daemon=True).start()
    entered.acquire(), entered.acquire()
    ready()
    threading.Event().wait()


@case("endless-kernel-with-gil", verdicts=["blocked"], findings=["gil-held-in-blocking-cuda-call", "waiting-for-gpu"])
def endless_kernel_with_gil():
    keep_the_gil()
    driver = Driver()
    driver.launch(driver.function(b"endless"))
    go = threading.Event()
    for number in range(3):
        threading.Thread(target=go.wait, name="worker-%d" % number, daemon=True).start()
    ready()
    go.set()
    driver("cuCtxSynchronize", holding=True)


@case("host-flag", **WAITS_FOR_GPU)
def host_flag():
    driver = Driver()
    flag, there = driver.flag()
    driver.launch(driver.function(b"until_flag"), there)
    gate = threading.Lock()

    def raise_the_flag():
        with gate:
            flag[0] = 1

    with gate:
        threading.Thread(target=raise_the_flag, name="raises-the-flag", daemon=True).start()
        ready()
        driver("cuCtxSynchronize")


@case("queue-full", words=["cuLaunchKernel", "launcher"], **WAITS_FOR_GPU)
def queue_full():
    """A launch into a full queue waits with the lock of its context, which another call needs."""
    driver = Driver()
    endless, launched, memory = driver.function(b"endless"), [0], ctypes.c_uint64()

    def launch():
        driver.enter()
        while True:
            driver.launch(endless)
            launched[0] += 1

    threading.Thread(target=launch, name="launcher", daemon=True).start()
    before, end = -1, time.monotonic() + 60
    while launched[0] != before and time.monotonic() < end:
        before = launched[0]
        threading.Event().wait(0.5)
    ready()
    driver("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 20))


def lazy_loading():
    """The host loads another kernel before it writes the word that the running one waits for."""
    driver = Driver()
    flag, there = driver.flag()
    until_flag, more = driver.function(b"until_flag"), ctypes.c_void_p()
    driver.launch(until_flag, there)
    ready()
    driver("cuModuleLoadData", ctypes.byref(more), MORE_PTX)
    another = driver.function(b"another", more)
    other_stream = ctypes.c_void_p()
    driver("cuStreamCreate", ctypes.byref(other_stream), 1)
    driver.launch(another, stream=other_stream)
    flag[0] = 1
    driver("cuCtxSynchronize")


case("lazy-loading", verdicts=["blocked"], findings=["lazy-loading-vs-running-kernel"],
     environment={"CUDA_MODULE_LOADING": "LAZY"})(lazy_loading)


# The end of a program, fork, errors.

@case("exit", verdicts=["blocked"], findings=["cuda-call-at-exit", "waiting-for-gpu"], words=["libat_exit.so"])
def at_exit():
    folder = tempfile.mkdtemp()
    library, program = os.path.join(folder, "libat_exit.so"), os.path.join(folder, "at_exit")
    source = os.path.join(HERE, "at_exit.cpp")
    subprocess.check_call(["g++", "-O1", "-shared", "-fPIC", "-DLIBRARY", source, "-o", library, "-ldl"])
    subprocess.check_call(["g++", "-O1", source, "-o", program, library, "-Wl,-rpath," + folder])
    os.execv(program, [program])


@case("fork", verdicts=["orphaned-lock", "blocked"], findings=["cuda-after-fork"])
def fork():
    """The child gets an error from its first call, and its handler waits for somebody who does not come."""
    driver = Driver()
    memory = ctypes.c_uint64()
    child = os.fork()
    if child == 0:
        signal.alarm(ENDS_AFTER)
        try:
            driver("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(1 << 20))
        except CudaError:
            ready()
            threading.Event().wait()
        os._exit(0)
    os.waitpid(child, 0)


@case("failed-launch", verdicts=["blocked", "stuck"], findings=["failed-launch"])
def failed_launch():
    from concurrent.futures import ThreadPoolExecutor

    driver = Driver()
    wrong, handled = driver.function(b"wrong_address"), threading.Event()

    def work():
        driver.enter()
        driver.launch(wrong)
        try:
            driver("cuStreamSynchronize", driver.stream)
        except CudaError:
            ready()
            handled.wait()

    pool = ThreadPoolExecutor(1, thread_name_prefix="worker")
    pool.submit(work).result()


@case("failed-launch-torch", needs=["torch"], verdicts=["blocked", "stuck"], findings=["failed-launch"])
def failed_launch_torch():
    import torch

    handled = threading.Event()

    def work():
        table = torch.zeros(8, device="cuda")
        try:
            table[torch.tensor([1 << 20], device="cuda")].cpu()
        except RuntimeError:
            ready()
            handled.wait()

    worker = threading.Thread(target=work, name="worker")
    worker.start()
    worker.join()


@case("error-thrown-away", verdicts=["blocked", "stuck"], findings=["gpu-error-behind-hang"], recorded=True,
      words=["cuStreamSynchronize has answered 7"])
def error_thrown_away():
    """A worker gets the error of its kernel, tells nobody, and waits for more to do; the main thread waits for its result."""
    driver = Driver()
    wrong, more, results = driver.function(b"wrong_address"), threading.Event(), threading.Event()

    def work():
        driver.enter()
        driver.launch(wrong)
        driver.releasing.cuStreamSynchronize(driver.stream)
        ready()
        more.wait()

    threading.Thread(target=work, name="worker").start()
    results.wait()


@case("error-thrown-away-torch", needs=["torch"], verdicts=["blocked", "stuck"], findings=["gpu-error-behind-hang"],
      recorded=True, words=["has answered 710 (cudaErrorAssert)"])
def error_thrown_away_torch():
    import torch

    more, results = threading.Event(), threading.Event()

    def work():
        table = torch.zeros(8, device="cuda")
        try:
            table[torch.tensor([1 << 20], device="cuda")].cpu()
        except RuntimeError:
            pass
        ready()
        more.wait()

    threading.Thread(target=work, name="worker").start()
    results.wait()


@case("nccl-behind-a-kernel", needs=["torch"], verdicts=["blocked"], findings=["waiting-for-gpu"],
      words=["The first that NCCL was given and has not done is all_reduce #4 of default_pg"])
def nccl_behind_a_kernel():
    """A job of one rank: a kernel of its own runs without end, and behind it the fourth all-reduce."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    import torch
    import torch.distributed

    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl")
    numbers = torch.ones(1 << 20, device="cuda")
    for _ in range(3):
        torch.distributed.all_reduce(numbers)
    torch.cuda.synchronize()
    torch.cuda._sleep(1 << 40)
    torch.distributed.all_reduce(numbers)
    ready()
    torch.cuda.synchronize()


@case("hostfunc-calls-cuda", verdicts=["suspected-deadlock", "deadlock"], findings=["cuda-call-in-host-function"])
def call_in_host_function():
    """cuCtxSynchronize and cuMemAlloc return an error there (driver 580.159.04); this one never returns."""
    driver = Driver()
    entered = threading.Event()

    @HostFunction
    def calls_the_driver(_):
        entered.set()
        driver("cuStreamSynchronize", driver.stream)

    driver("cuLaunchHostFunc", driver.stream, calls_the_driver, None)
    entered.wait()
    ready()
    driver("cuStreamSynchronize", driver.stream)




# Several ranks.

RANK = """
import os, sys, threading, signal
signal.alarm(%d)
rank = int(sys.argv[1])
import torch, torch.distributed as dist
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
x = torch.ones(1 << 20, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
gate = threading.Lock()
if rank == 1:
    with gate:
        def feed():
            with gate: pass
        threading.Thread(target=feed, name="feeder", daemon=True).start()
        print("READY", flush=True)
        threading.Event().wait()
print("READY", flush=True)
dist.all_reduce(x)
torch.cuda.synchronize()
""" % ENDS_AFTER


def ranks():
    environment = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    processes = []
    for rank in range(2):
        own = dict(environment, RANK=str(rank), LOCAL_RANK=str(rank))
        command = [sys.executable, "-u", "-c", RANK, str(rank)]
        processes.append(subprocess.Popen(command, env=own, stdout=subprocess.PIPE))
    for process in processes:
        while process.stdout.readline().strip() != b"READY":
            pass
    ready(*[process.pid for process in processes])
    for process in processes:
        process.wait()


case("nccl", verdicts=["blocked"], findings=["waiting-for-gpu"], devices=2)(ranks)
case("nccl-launch-blocking", verdicts=["blocked"], findings=["launch-blocking-with-nccl"], devices=2,
     environment={"CUDA_LAUNCH_BLOCKING": "1"})(ranks)


if __name__ == "__main__":
    import workloads

    if sys.argv[1] not in CASES:
        import pools  # registers more, as does what it imports

    signal.alarm(ENDS_AFTER)
    workloads.CASES[sys.argv[1]].run()
    print("DONE", flush=True)
