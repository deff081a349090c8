"""The report of lockscope as Python objects: version 1.1 of its JSON.

Written by scripts/check/report-types.py from `lockscope schema`; not by hand.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Optional

__all__ = [
    "Callback",
    "Capture",
    "Certainty",
    "ClusterLease",
    "ClusterMember",
    "ClusterRequest",
    "ClusterRole",
    "Connection",
    "CudaCall",
    "CudaCallError",
    "CudaError",
    "CudaInfo",
    "Cycle",
    "Edge",
    "Enqueued",
    "Finding",
    "FindingClass",
    "Frame",
    "FrameKind",
    "Gap",
    "Gone",
    "Gpu",
    "GpuCollective",
    "GpuError",
    "GpuKernel",
    "GpuLine",
    "GpuPlace",
    "Granted",
    "Hold",
    "HoldSource",
    "Host",
    "Identity",
    "Job",
    "JobRanks",
    "Library",
    "Namespaces",
    "NativeFrame",
    "NcclCommunicator",
    "NcclRank",
    "NcclRas",
    "Needs",
    "Place",
    "Process",
    "PythonInfo",
    "RankGroup",
    "RegistersRead",
    "Report",
    "Resource",
    "RunningTask",
    "Scene",
    "SceneLine",
    "ScenePlace",
    "Severity",
    "Source",
    "SourceKind",
    "SystemCall",
    "TakenAt",
    "Thread",
    "ThreadReference",
    "ThreadState",
    "Trust",
    "Verdict",
    "Wait",
    "WaitingTask",
    "Wanted",
    "Words",
    "Working",
]


#: What was looked at.
SourceKind = Literal["live", "core", "snapshot", "merged", "recorded"]


@dataclass(frozen=True)
class Source:
    """Where the facts come from."""

    #: What was looked at.
    kind: SourceKind

    #: The file, if it was one.
    path: Optional[str] = None


@dataclass(frozen=True)
class Host:
    """A machine, as it is told from others."""

    #: Its name; not in a snapshot that was written with `--redact`.
    name: Optional[str] = None

    #: What it drew by lot when it was started: equal on one machine until it is started again.
    boot_id: Optional[str] = None

    #: Release of its kernel.
    kernel: Optional[str] = None


#: The verdict, most severe first.
Verdict = Literal[
    "deadlock",
    "suspected-deadlock",
    "orphaned-lock",
    "stuck",
    "running",
    "blocked",
    "could-deadlock",
    "nothing-found",
]


@dataclass(frozen=True)
class ThreadReference:
    """A thread by process and tid."""

    #: Process.
    process: str

    #: Thread.
    tid: int


@dataclass(frozen=True)
class SceneLine:
    """A line of source, and what somebody does there."""

    #: "holds it", "waits, held by Thread-2".
    does: str

    #: Its number, where it is known at which line.
    line: Optional[int] = None

    #: Its text, where that may be shown.
    text: Optional[str] = None


@dataclass(frozen=True)
class ScenePlace:
    """A function, and what happens in it."""

    #: What happens there, in the order of the lines.
    lines: List[SceneLine]

    #: The source file, by its absolute path where that is known.
    file: Optional[str] = None

    #: The line that the function is at.
    line: Optional[int] = None

    #: The function, or module and offset of one without a name.
    function: Optional[str] = None

    #: The file was changed after the process began: these may not be the lines that run.
    changed: Optional[bool] = None


@dataclass(frozen=True)
class Scene:
    """Somebody who takes part, or several who do the same, at the lines of source that matter. (Since 1.1.)"""

    #: `Thread-1 (14016)`, or of several `pool_0 (14016) and 31 more`.
    who: str

    #: The threads; none for whoever is no thread.
    threads: List[ThreadReference]

    #: Where they are: the place where they wait is the last.
    places: List[ScenePlace]


@dataclass(frozen=True)
class PythonInfo:
    """CPython of a process."""

    #: `3.12.3`.
    version: str

    #: Built with `--disable-gil`.
    free_threaded: bool


@dataclass(frozen=True)
class CudaInfo:
    """CUDA of a process."""

    #: Version of the user-mode driver.
    libcuda: Optional[str] = None

    #: Version of the runtime, where it is a library of its own.
    libcudart: Optional[str] = None

    #: Version of the kernel driver.
    kernel_driver: Optional[str] = None


@dataclass(frozen=True)
class Namespaces:
    """Namespaces by their inodes; `None` where they could not be read."""

    #: Of process ids.
    pid: Optional[int] = None

    #: Of the network.
    net: Optional[int] = None

    #: Of System V objects and message queues.
    ipc: Optional[int] = None


@dataclass(frozen=True)
class Job:
    """A job, as its engine names it."""

    #: `torchrun`, `mpi`, `slurm`, `kubernetes`, `ray`; `torch` where PyTorch's objects alone say that it is one.
    engine: str

    #: The engine's name for it; null where the engine sets none.
    id: Optional[str] = None

    #: The step of it, where the engine has steps.
    step: Optional[str] = None


@dataclass(frozen=True)
class Identity:
    """Which process of which job it is."""

    #: Its id in its own PID namespace.
    ns_pid: int

    #: Its namespaces.
    namespaces: Namespaces = field(default_factory=lambda: Namespaces(**{}))

    #: When it started, in clock ticks since boot.
    start_ticks: Optional[int] = None

    #: The job that it belongs to, by the variables of the innermost launcher, or by the word of its cluster.
    job: Optional[Job] = None

    #: Its rank there.
    rank: Optional[int] = None

    #: How many ranks there are.
    size: Optional[int] = None

    #: How many times the job was started again before.
    attempt: Optional[int] = None

    #: Its number among the ranks of its node.
    local_rank: Optional[int] = None

    #: How many ranks its node has.
    local_size: Optional[int] = None

    #: It inherited the rank from the process that is the rank, as workers of a DataLoader do.
    helper: Optional[bool] = None

    #: What started the ranks of this node: process id and ticks of its start.
    launcher: Optional[List[int]] = None

    #: The machine that it runs on, in a report over several. (Since 1.1.)
    host: Optional[Host] = None

    #: Addresses of its network namespace, without those of loopback.
    addresses: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class ClusterRole:
    """What a process is to a cluster."""

    #: `worker`, `scheduler`, `client` or `nanny`, which starts a worker and looks after it.
    role: str

    #: Its address.
    address: Optional[str] = None

    #: What the cluster calls it.
    name: Optional[str] = None

    #: Its id, which no other has.
    id: Optional[str] = None

    #: How many tasks a worker runs at a time.
    threads: Optional[int] = None

    #: The id of its machine in the cluster.
    node: Optional[str] = None

    #: The id of the actor that it is; `name` is the actor's class.
    actor: Optional[str] = None


@dataclass(frozen=True)
class RunningTask:
    """A task in a thread."""

    #: The thread.
    tid: int

    #: Its key; in Ray its function.
    task: str

    #: Its id, where that is not its key.
    id: Optional[str] = None

    #: It has left its place to another one (`secede`).
    has_seceded: Optional[bool] = None

    #: It burns CPU, in digests.
    is_busy: Optional[bool] = None

    #: What the thread does, in digests.
    doing: Optional[str] = None


@dataclass(frozen=True)
class ClusterRequest:
    """What a thread waits for in a cluster."""

    #: The thread.
    tid: int

    #: `lock`, `semaphore`, `event`, `result`, `queue`, `variable`, `answer`; `wait` where one of the results is enough.
    what: str

    #: The name of it, or the keys of the tasks whose results are wanted.
    names: List[str]

    #: What no other request has and each part of which is the same for as long as this one lasts.
    request: str

    #: The task that it runs.
    task: Optional[str] = None

    #: It gives up by itself.
    timed: Optional[bool] = None

    #: The line of the program.
    place: Optional[str] = None

    #: The one task of it is not done: the thread waits for that word, and not for the bytes of the result.
    is_undone: Optional[bool] = None


@dataclass(frozen=True)
class ClusterLease:
    """A lock or a unit of a semaphore that a process has."""

    #: `lock` or `semaphore`.
    what: str

    #: Its name.
    name: str

    #: How many may have one at a time.
    most: int

    #: Names of the leases, as the scheduler knows them.
    leases: List[str]

    #: The thread that is inside its `with` block, or that alone has it at hand.
    tid: Optional[int] = None

    #: The task that this thread runs.
    task: Optional[str] = None

    #: The line of the program that took it, or that has it.
    place: Optional[str] = None

    #: The thread is inside the `with` block: nobody else gives it back but by misuse.
    is_entered: Optional[bool] = None


@dataclass(frozen=True)
class WaitingTask:
    """A task that waits for others."""

    #: Its key.
    task: str

    #: Keys of those that it waits for.
    on: List[str]


@dataclass(frozen=True)
class Granted:
    """What a scheduler has given of a lock or semaphore."""

    #: Its name.
    name: str

    #: Names of the leases.
    leases: List[str]

    #: How many may have one at a time.
    most: Optional[int] = None


@dataclass(frozen=True)
class ClusterMember:
    """A process of a cluster, as its own memory tells it."""

    #: `dask`, `ray`.
    engine: str

    #: What the process is to the cluster: several things at once where one process starts all.
    roles: List[ClusterRole]

    #: The address of the scheduler, or of Ray's control service, which all processes of a cluster share.
    scheduler: Optional[str] = None

    #: The job that its tasks are of, where the cluster has several.
    job: Optional[str] = None

    #: Tasks that its threads run.
    running: List[RunningTask] = field(default_factory=list)

    #: Tasks that it is to run and has no thread for.
    ready: List[str] = field(default_factory=list)

    #: How many more such tasks there are than are named.
    ready_beyond: Optional[int] = None

    #: What its threads wait for.
    requests: List[ClusterRequest] = field(default_factory=list)

    #: Locks and semaphores of the cluster that it has.
    leases: List[ClusterLease] = field(default_factory=list)

    #: Of a scheduler: tasks that wait for others, and for which.
    waiting: List[WaitingTask] = field(default_factory=list)

    #: Of a scheduler: leases that it has given, of each lock or semaphore.
    granted: List[Granted] = field(default_factory=list)


@dataclass(frozen=True)
class Connection:
    """One end of a TCP connection."""

    #: Its descriptor; the first of several.
    fd: int

    #: Address and port of this end.
    local: str

    #: Address and port of the other end.
    remote: str

    #: `established`, `close-wait`, ...
    state: str

    #: Bytes that have come and were not read.
    unread: int

    #: Bytes that were sent and not acknowledged.
    unsent: int

    #: Bytes that it has carried since it was opened, both ways together, of a rank and where the kernel counts them.
    #: (Since 1.1.)
    bytes: Optional[int] = None


@dataclass(frozen=True)
class GpuCollective:
    """A collective of NCCL."""

    #: `AllReduce`, `SendRecv`; null where the kernel serves several.
    operation: Optional[str] = None

    #: `Sum`.
    reduction: Optional[str] = None

    #: `f32`.
    element: Optional[str] = None

    #: `RING`.
    algorithm: Optional[str] = None

    #: `LL`.
    protocol: Optional[str] = None


@dataclass(frozen=True)
class GpuLine:
    """A source line."""

    #: The file as the compiler noted it.
    file: str

    #: The line.
    line: int

    #: The function, where it was inlined or called.
    function: Optional[str] = None


@dataclass(frozen=True)
class GpuPlace:
    """Threads of a kernel on one line, or at one address."""

    #: Source lines, the innermost inlined call first; empty where the code was compiled without.
    lines: List[GpuLine]

    #: Program counters.
    addresses: List[str]

    #: Blocks, warps and threads there.
    blocks: int

    #: Warps.
    warps: int

    #: Threads.
    threads: int

    #: Block of one of them.
    example_block: List[int]

    #: Its place in the block.
    example_thread: List[int]

    #: The function of the code, where it is not the kernel itself.
    function: Optional[str] = None

    #: Calls that led there, the innermost first.
    calls: List[GpuLine] = field(default_factory=list)


@dataclass(frozen=True)
class GpuKernel:
    """A kernel that ran."""

    #: Its name for people, without parameters.
    name: str

    #: As it stands in the file.
    symbol: str

    #: The driver's number of the launch.
    launch: int

    #: The context that it runs in.
    context: str

    #: `active`, `pending`, `sleeping`, `terminated` or `unknown`.
    status: str

    #: Whether another kernel launched it.
    from_gpu: bool

    #: Blocks of the grid.
    grid: List[int]

    #: Threads of a block.
    block: List[int]

    #: Blocks of a cluster; zeros where it has none.
    cluster: List[int]

    #: Its arguments, as words of eight bytes.
    arguments: List[str]

    #: How many blocks, warps and threads were on the GPU.
    blocks: int

    #: Warps.
    warps: int

    #: Threads.
    threads: int

    #: Where they were, most threads first.
    places: List[GpuPlace]

    #: The collective of NCCL that it is part of.
    collective: Optional[GpuCollective] = None


@dataclass(frozen=True)
class GpuError:
    """An error of a kernel."""

    #: `illegal address`.
    what: str

    #: Its source lines, the innermost first.
    lines: List[GpuLine]

    #: How many threads it struck; 0 where only the multiprocessor tells.
    threads: int

    #: The kernel, where it is known.
    kernel: Optional[str] = None

    #: The instruction.
    address: Optional[str] = None


@dataclass(frozen=True)
class Gpu:
    """A GPU that a process used, by a core of it."""

    #: CUDA's number of it in the process.
    device: int

    #: `NVIDIA H100 80GB HBM3`.
    name: str

    #: `sm_90`.
    architecture: str

    #: The file.
    core: str

    #: Kernels that had begun and not ended. One that has yet to begin is not known.
    kernels: List[GpuKernel]

    #: Its multiprocessors.
    multiprocessors: int = 0

    #: The driver that wrote the core.
    driver: Optional[str] = None

    #: Errors of kernels.
    errors: List[GpuError] = field(default_factory=list)


@dataclass(frozen=True)
class Enqueued:
    """The last operation of a group of ranks that a process has enqueued: what is not there it has not come to."""

    #: `gloo`, `nccl`.
    backend: str

    #: The group.
    group: str

    #: Its number there.
    last: int

    #: `all_reduce`.
    op: str

    #: It is done.
    over: bool

    #: How many ranks the group has.
    size: Optional[int] = None


#: What a thread does, by the kernel's word.
ThreadState = Literal["running", "sleeping", "disk-sleep", "stopped", "traced", "zombie", "other"]


@dataclass(frozen=True)
class CudaError:
    """An error of CUDA's runtime."""

    #: Its number: 719.
    number: int

    #: Its name: `cudaErrorLaunchFailure`.
    name: str


@dataclass(frozen=True)
class CudaCallError:
    """An error that a call into CUDA's driver has answered."""

    #: Its number: 700.
    number: int

    #: The call that answered it first, since the last other error.
    function: str

    #: How long ago, in milliseconds.
    since_ms: Optional[int] = None


@dataclass(frozen=True)
class CudaCall:
    """A call into CUDA's driver."""

    #: `cuStreamSynchronize`, as the program has asked for it.
    function: str

    #: The first four words that it was given, in hexadecimal digits; a function with fewer arguments has not looked at
    #: the rest.
    arguments: List[str]

    #: How long ago it began, in milliseconds.
    since_ms: Optional[int] = None

    #: What it has answered; absent while the thread is in it.
    result: Optional[int] = None

    #: The last error that a call of the thread has answered.
    error: Optional[CudaCallError] = None


#: What a merged frame is.
FrameKind = Literal["native", "inline", "python", "boundary"]


#: How a native frame was found.
Trust = Literal["cfi", "frame-pointer", "scan"]


#: Whose code a frame runs, where that is known and not the program's.
Library = Literal["c", "cuda", "nccl", "python", "rust"]


@dataclass(frozen=True)
class Frame:
    """One frame."""

    #: What it is.
    kind: FrameKind

    #: Function; null prints as module and pc.
    function: Optional[str] = None

    #: Module.
    module: Optional[str] = None

    #: Source file.
    file: Optional[str] = None

    #: Source line.
    line: Optional[int] = None

    #: Instruction pointer.
    pc: Optional[str] = None

    #: How it was found, for a native frame.
    trust: Optional[Trust] = None

    #: Whose code it is, where that is known and not the program's.
    library: Optional[Library] = None

    #: Whose code it is, as a person calls that: `CPython`, `pytest`. The program's own has none. (Since 1.1.)
    belongs_to: Optional[str] = None

    #: Offset of the pc in its module.
    module_offset: Optional[str] = None

    #: Local variables of a Python frame (`--locals`), as name and representation.
    locals: List[List[str]] = field(default_factory=list)


@dataclass(frozen=True)
class SystemCall:
    """A system call."""

    #: Its number.
    number: int

    #: All six argument registers, used or not.
    arguments: List[str]

    #: Its name, where it is one that waits.
    name: Optional[str] = None


@dataclass(frozen=True)
class NativeFrame:
    """A frame before anything was merged."""

    #: Instruction pointer.
    pc: str

    #: Stack pointer.
    sp: str

    #: How it was found.
    trust: Trust

    #: Callee-saved registers that are known there: name and value; of the innermost frames only.
    registers: List[List[str]]

    #: Function.
    function: Optional[str] = None

    #: Module.
    module: Optional[str] = None

    #: Offset of the pc in its module.
    module_offset: Optional[str] = None

    #: Canonical frame address; unknown in the last frame.
    cfa: Optional[str] = None


@dataclass(frozen=True)
class Words:
    """Words of memory."""

    #: The resource that lies there.
    resource: str

    #: Address of the first word.
    address: str

    #: Words of four bytes, as gdb's `x/16xw` prints them.
    words: List[str]


@dataclass(frozen=True)
class Working:
    """What was read of one thread."""

    #: Registers at the stop: name and value.
    registers: List[List[str]]

    #: Native frames as they were unwound, innermost first, with those that run Python.
    native: List[NativeFrame]

    #: Why there are no more.
    end: str

    #: Memory of what it waits for and holds, as far as that lies in memory.
    memory: List[Words]

    #: The system call that it is in.
    system_call: Optional[SystemCall] = None


@dataclass(frozen=True)
class Thread:
    """One thread."""

    #: Thread id.
    tid: int

    #: Thread id in the target's PID namespace.
    ns_tid: int

    #: Name from Python, else the kernel's.
    name: str

    #: The kernel's name.
    os_name: str

    #: What the kernel says that it does.
    state: ThreadState

    #: Merged frames, innermost first.
    frames: List[Frame]

    #: What it is there for, or in which framework, in one phrase.
    role: Optional[str] = None

    #: The error that CUDA's runtime keeps for it until somebody asks. (Since 1.1.)
    cuda_error: Optional[CudaError] = None

    #: Its last call into CUDA's driver, where the recorder saw it. (Since 1.1.)
    cuda_call: Optional[CudaCall] = None

    #: The call: the entry point of CUDA or the C library that is known by name, what the program called of Python's
    #: library, or a line of the program itself.
    call: Optional[int] = None

    #: The line of the program that made the call, where that is another frame.
    caller: Optional[int] = None

    #: How it was read, on request.
    working: Optional[Working] = None


@dataclass(frozen=True)
class Process:
    """One process."""

    #: `p0`, `p1`, ...
    id: str

    #: Process id.
    pid: int

    #: Arguments.
    cmdline: List[str]

    #: Threads.
    threads: List[Thread]

    #: Program.
    exe: Optional[str] = None

    #: Parent's process id.
    parent: Optional[int] = None

    #: CPython, if it runs one.
    python: Optional[PythonInfo] = None

    #: CUDA, if it is loaded.
    cuda: Optional[CudaInfo] = None

    #: Which process of which job it is, where that is known. (Since 1.1.)
    identity: Optional[Identity] = None

    #: What it is to a cluster of workers, as Dask's. (Since 1.1.)
    cluster: Optional[ClusterMember] = None

    #: Its TCP connections. (Since 1.1.)
    sockets: List[Connection] = field(default_factory=list)

    #: Its GPUs, where there are cores of them.
    gpus: List[Gpu] = field(default_factory=list)

    #: What it has enqueued last in each group of ranks, by PyTorch's Flight Recorder in its memory. (Since 1.1.)
    enqueued: List[Enqueued] = field(default_factory=list)


#: What of a thing is waited for, where that is not the whole of it.
Wanted = Literal["data", "answer", "room", "connection", "end"]


@dataclass(frozen=True)
class Place:
    """Where a thing lies, as far as that tells whose it is."""

    #: Which one it is.
    kind: Literal["module", "file", "stack", "library", "heap"]

    #: What or whose.
    of: Optional[str] = None


@dataclass(frozen=True)
class Resource:
    """A lock or another thing waited for."""

    #: `r1`, `r2`, ...
    id: str

    #: A kind of the contract.
    kind: str

    #: Process in which `address` lies.
    process: str

    #: For people.
    label: str

    #: Words of it.
    state: Dict[str, Any]

    #: Address.
    address: Optional[str] = None

    #: What of it is waited for, where that is not the whole of it.
    wanted: Optional[Wanted] = None

    #: What it is: "mutex", "asyncio.Lock", `pipe:[4026]`.
    noun: Optional[str] = None

    #: What the program calls it.
    name: Optional[str] = None

    #: How far it lies behind the begin of what has that name.
    offset: Optional[int] = None

    #: The function that it is for: what runs for a future, or which call has a lock without a name.
    function: Optional[str] = None

    #: How it stands with it: "5 in it".
    detail: Optional[str] = None

    #: Its address, of a thing without a name.
    at: Optional[str] = None

    #: Where it lies.
    place: Optional[Place] = None


#: Whether every holder must let go, or one of several is enough.
Needs = Literal["all", "any"]


@dataclass(frozen=True)
class TakenAt:
    """A line of source at which something was taken, or at which who has no frames waits."""

    #: The file.
    file: str

    #: The line.
    line: int

    #: The function.
    function: str

    #: The variable that gives it back when it goes, where there is one: `a` of `std::lock_guard a(from.m)`.
    guard: Optional[str] = None


@dataclass(frozen=True)
class Callback:
    """A function that somebody called back."""

    #: Index of its frame; null on the way into it.
    frame: Optional[int] = None


#: How sure a wait or a hold is.
Certainty = Literal["candidate", "inferred", "exact"]


@dataclass(frozen=True)
class Wait:
    """One wait."""

    #: Process of the waiter.
    process: str

    #: What it waits for.
    resource: str

    #: `all` or `any` holders must let go.
    needs: Needs

    #: Ends by a time-out.
    timed: bool

    #: How sure.
    certainty: Certainty

    #: How it is known.
    evidence: List[str]

    #: Waiting thread; null when a resource waits.
    tid: Optional[int] = None

    #: The resource that waits, for a waiter that is no thread.
    waiter_resource: Optional[str] = None

    #: `read`, `write`, ...
    mode: Optional[str] = None

    #: Sleeping since.
    since_ms: Optional[int] = None

    #: Index of the waiting frame.
    frame: Optional[int] = None

    #: The call: the entry point of CUDA or the C library that is known by name, what the program called of Python's
    #: library, or a line of the program itself.
    call: Optional[int] = None

    #: The line of the program that made the call, where that is another frame.
    caller: Optional[int] = None

    #: The line where it waits, of a waiter that has no frames: a task. (Since 1.1.)
    place: Optional[TakenAt] = None

    #: It waits in a function that was called back, by the call that took what the waiter holds.
    callback: Optional[Callback] = None


#: Why a holder can never let go.
Gone = Literal["exited", "left-in-parent", "process-dead"]


#: Who saw that something was taken, where neither the lock nor the code of a thread tells it.
HoldSource = Literal["recorder"]


@dataclass(frozen=True)
class Hold:
    """One hold."""

    #: Process of the holder.
    process: str

    #: What it holds.
    resource: str

    #: How sure.
    certainty: Certainty

    #: How it is known.
    evidence: List[str]

    #: Holding thread (its former tid when gone); null when a whole process holds.
    tid: Optional[int] = None

    #: Its id in `resources`, where a task or a kernel of the GPU holds. (Since 1.1.)
    holder_resource: Optional[str] = None

    #: Its rank, where a rank of a job holds. (Since 1.1.)
    holder_rank: Optional[int] = None

    #: Why the holder can never let go.
    gone: Optional[Gone] = None

    #: `read`, `write`.
    mode: Optional[str] = None

    #: Index of the frame that took it.
    frame: Optional[int] = None

    #: The line where it was taken, where that is known: the frame has gone on since. (Since 1.1.)
    taken: Optional[TakenAt] = None

    #: How long ago it was taken, in milliseconds, where the recorder saw it. (Since 1.1.)
    since_ms: Optional[int] = None

    #: `recorder`: the recorder saw it being taken (`lockscope run --record`). (Since 1.1.)
    source: Optional[HoldSource] = None

    #: The call: the entry point of CUDA or the C library that is known by name, what the program called of Python's
    #: library, or a line of the program itself.
    call: Optional[int] = None

    #: The line of the program that made the call, where that is another frame.
    caller: Optional[int] = None


@dataclass(frozen=True)
class Edge:
    """One edge: `waiter` waits for `resource`, which `holder` holds."""

    #: Process of the waiter.
    process: str

    #: The resource.
    resource: str

    #: Process of the holder.
    holder_process: str

    #: Waiting thread.
    waiter: Optional[int] = None

    #: The resource that waits, for a waiter that is no thread.
    waiter_resource: Optional[str] = None

    #: Holding thread; null when a process or a resource holds.
    holder: Optional[int] = None

    #: The resource that holds, for a holder that is no thread.
    holder_resource: Optional[str] = None


@dataclass(frozen=True)
class Cycle:
    """A cycle of the wait-for graph."""

    #: The weakest of its edges.
    certainty: Certainty

    #: Edges in order: the holder of one is the waiter of the next.
    edges: List[Edge]


#: How grave a finding is.
Severity = Literal["error", "warning", "note"]


#: Whether a finding is about what was seen to happen. What says nothing is.
FindingClass = Literal["possible"]


@dataclass(frozen=True)
class Finding:
    """A recognised situation."""

    #: Its name in the contract.
    code: str

    #: How grave.
    severity: Severity

    #: A headline.
    title: str

    #: What happens, in sentences.
    message: str

    #: Threads that take part.
    threads: List[ThreadReference]

    #: Resources that take part.
    resources: List[str]

    #: What to change.
    help: List[str]

    #: Public reports of the same.
    references: List[str]

    #: `possible`: it did not happen, and could. (Since 1.1.)
    class_: Optional[FindingClass] = None

    #: How sure: `exact` only where all of its premises were read.
    certainty: Certainty = "inferred"

    #: Of a wait without end: what could have ended it, and why that cannot.
    ruled_out: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Gap:
    """Something that could not be read or decided, with the reason. Gaps are part of every report."""

    #: What is missing: "stack of thread 543", "readers of rwlock 0x..".
    what: str

    #: Why, and where there is one, the next thing to try.
    why: str


@dataclass(frozen=True)
class RankGroup:
    """Ranks that do the same."""

    #: `0-2,5`.
    ranks: str

    #: How many.
    count: int

    #: What lockscope says of each alone.
    verdict: Verdict

    #: What they wait for, and where.
    doing: str


@dataclass(frozen=True)
class JobRanks:
    """All ranks of a job."""

    #: `torchrun`, `mpi`, `slurm`, `kubernetes`.
    engine: str

    #: Ranks of which there is a look: `0-2,5`.
    reported: str

    #: Ranks of which there is none.
    missing: str

    #: Those of the missing ones that have ended.
    ended: str

    #: Each rank was looked at in two rounds.
    two_rounds: bool

    #: Ranks that do the same, the rarest first.
    groups: List[RankGroup]

    #: Its name: engine, id and step.
    job: Optional[str] = None

    #: What one of them is called where it has no rank: `process`.
    member: Optional[str] = None

    #: How many ranks there are, where a launcher says so.
    size: Optional[int] = None


@dataclass(frozen=True)
class NcclRank:
    """A rank of a communicator."""

    #: Its number there.
    rank: int

    #: How many operations of each kind it has launched: `AllReduce`.
    launched: Dict[str, int]

    #: The address of its machine.
    host: Optional[str] = None

    #: Its process, as its own namespace numbers it.
    pid: Optional[int] = None


@dataclass(frozen=True)
class NcclCommunicator:
    """Ranks that work together in NCCL. They are numbered within it."""

    #: NCCL's name for it.
    hash: str

    #: Those that do.
    ranks: List[NcclRank]

    #: How many ranks it has.
    size: Optional[int] = None

    #: How many of its ranks do not answer RAS.
    missing: int = 0


@dataclass(frozen=True)
class NcclRas:
    """An answer of NCCL's RAS: who has launched which operations, in communicators where nothing was launched for a
    while."""

    #: Where it was asked.
    address: str

    #: Those that have a process of this report.
    communicators: List[NcclCommunicator]


@dataclass(frozen=True)
class RegistersRead:
    """How many threads' registers were had in which way."""

    #: The thread was stopped.
    by_stop: int

    #: It slept, and an eBPF task iterator told all registers.
    asleep_by_ebpf: int

    #: It slept, and /proc told its system call, stack pointer and pc only.
    asleep_by_proc: int

    #: How often threads that did not come to their stop in time were asked again, at the look where that was most
    #: often.
    asked_again: int = 0


@dataclass(frozen=True)
class Capture:
    """How the look went."""

    #: Threads captured.
    threads: int

    #: The longest time that a process was stopped, in microseconds.
    pause_us: int

    #: Wall time of the whole look.
    total_us: int

    #: How often it looked.
    looks: int

    #: How threads' registers were had at the last look. (Since 1.1.)
    registers: RegistersRead = field(default_factory=lambda: RegistersRead(**{'by_stop': 0, 'asleep_by_ebpf': 0, 'asleep_by_proc': 0, 'asked_again': 0}))

    #: When the first look began, by the machine's clock (RFC 3339, UTC), where that is known. (Since 1.1.)
    began: Optional[str] = None

    #: When the last look ended. (Since 1.1.)
    ended: Optional[str] = None


@dataclass(frozen=True)
class Report:
    """What lockscope says of processes."""

    #: Always `lockscope.report`.
    schema: str

    #: [`VERSION`].
    version: str

    #: lockscope's own version.
    lockscope: str

    #: Where the facts come from.
    source: Source

    #: The verdict.
    verdict: Verdict

    #: The sentence of the text report.
    summary: str

    #: Captured processes.
    processes: List[Process]

    #: Locks and other things waited for.
    resources: List[Resource]

    #: Waits.
    waits: List[Wait]

    #: Holds.
    holds: List[Hold]

    #: Cycles, the shortest first, at most 50, each minimal.
    cycles: List[Cycle]

    #: Findings, the most important first.
    findings: List[Finding]

    #: What could not be read or decided.
    gaps: List[Gap]

    #: How the look went.
    capture: Capture

    #: The machine that the processes ran on, where that is known. (Since 1.1.)
    host: Optional[Host] = None

    #: One sentence: what a person reads first. (Since 1.1.)
    sentence: Optional[str] = None

    #: Who takes part, at the lines of source that matter; the main thread, where nothing is wrong. (Since 1.1.)
    scenes: List[Scene] = field(default_factory=list)

    #: Threads outside of what is wrong that cannot go on because of it: because of the cycles, else of the locks whose
    #: owner is gone, else of the threads of the first finding that is no mere note.
    victims: List[ThreadReference] = field(default_factory=list)

    #: All ranks of a job, in groups, where the report is of one. (Since 1.1.)
    job: Optional[JobRanks] = None

    #: What NCCL's RAS has said, where a process waits for its GPU. (Since 1.1.)
    nccl_ras: List[NcclRas] = field(default_factory=list)
