"""The report of lockscope as Python objects: version 1.2 of its JSON.

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
    "ClusterPart",
    "ClusterRequest",
    "ClusterRole",
    "ClusterThing",
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
    "JobEngine",
    "JobRanks",
    "Library",
    "Namespaces",
    "NativeFrame",
    "NcclCommunicator",
    "NcclRank",
    "NcclRas",
    "Needs",
    "Participant",
    "ParticipantLine",
    "ParticipantPlace",
    "Place",
    "Process",
    "Proof",
    "PythonInfo",
    "RankGroup",
    "RegistersRead",
    "Report",
    "Resource",
    "RunningTask",
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


#: The kind of a report's source.
SourceKind = Literal["live", "core", "snapshot", "merged", "recorded"]


@dataclass(frozen=True)
class Source:
    """The source of the facts."""

    #: The kind of the source.
    kind: SourceKind

    #: The file, if the source is one.
    path: Optional[str] = None


@dataclass(frozen=True)
class Host:
    """The identity of a machine."""

    #: Its name; not in a snapshot that was written with `--redact`.
    name: Optional[str] = None

    #: A random id of the boot: equal on one machine until the next start.
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
class ParticipantLine:
    """A line of source, and the participant's action there."""

    #: "holds it", "waits, held by Thread-2".
    does: str

    #: Its number, if known.
    line: Optional[int] = None

    #: Its text, if it may be shown.
    text: Optional[str] = None

    #: Where in the text the lock's name stands, else the call: the number of bytes before it. (Since 1.2.)
    column: Optional[int] = None


@dataclass(frozen=True)
class ParticipantPlace:
    """A function, with the lines that matter in it."""

    #: The lines that matter there, in their order.
    lines: List[ParticipantLine]

    #: The source file, by its absolute path if known.
    file: Optional[str] = None

    #: The line that the function is at.
    line: Optional[int] = None

    #: The function, or module and offset if it has no name.
    function: Optional[str] = None

    #: The file was changed after the process began, so these may not be the lines that run.
    changed: Optional[bool] = None


@dataclass(frozen=True)
class Participant:
    """A participant, or several with the same activity, at the lines of source that matter. (Since 1.1.)"""

    #: `Thread-1 (14016)`; for several `pool_0 (14016) and 31 more`.
    who: str

    #: The threads; none for a participant that is no thread.
    threads: List[ThreadReference]

    #: Their places: the last one is the place of the wait.
    places: List[ParticipantPlace]


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

    #: Version of the runtime, if that is a library of its own.
    libcudart: Optional[str] = None

    #: Version of the kernel driver.
    kernel_driver: Optional[str] = None


@dataclass(frozen=True)
class Namespaces:
    """Namespaces by their inodes; `None` where they could not be read."""

    #: The namespace of process ids.
    pid: Optional[int] = None

    #: The network namespace.
    net: Optional[int] = None

    #: The namespace of System V objects and message queues.
    ipc: Optional[int] = None


#: The launcher that started the ranks of a job, or the library whose cluster it is.
JobEngine = Literal["torchrun", "torch", "mpi", "slurm", "kubernetes", "dask", "ray", "other"]


@dataclass(frozen=True)
class Job:
    """A job, as its engine names it."""

    #: Its engine.
    engine: JobEngine

    #: The engine's name for it; null where the engine sets none.
    id: Optional[str] = None

    #: The step of it, where the engine has steps.
    step: Optional[str] = None


@dataclass(frozen=True)
class Identity:
    """The identity of a process: its host, and its place in a job."""

    #: Its id in its own PID namespace.
    ns_pid: int

    #: Its namespaces.
    namespaces: Namespaces = field(default_factory=lambda: Namespaces(**{}))

    #: Its start, in clock ticks since boot.
    start_ticks: Optional[int] = None

    #: Its job, by the variables of the innermost launcher, or by its cluster.
    job: Optional[Job] = None

    #: Its rank in the job.
    rank: Optional[int] = None

    #: The number of ranks of the job.
    size: Optional[int] = None

    #: The number of earlier attempts of the job.
    attempt: Optional[int] = None

    #: Its number among the ranks of its node.
    local_rank: Optional[int] = None

    #: The number of ranks on its node.
    local_size: Optional[int] = None

    #: It is a helper, which inherited the rank from the process that is the rank. Workers of a DataLoader are such
    #: helpers.
    helper: Optional[bool] = None

    #: The process that started the ranks of this node: process id and ticks of its start.
    launcher: Optional[List[int]] = None

    #: Its machine, in a report over several. (Since 1.1.)
    host: Optional[Host] = None

    #: Addresses of its network namespace, except loopback.
    addresses: List[str] = field(default_factory=list)


#: The part of a process in a cluster.
ClusterPart = Literal["worker", "scheduler", "client", "nanny", "other"]


@dataclass(frozen=True)
class ClusterRole:
    """A process's role in a cluster."""

    #: Its part there.
    role: ClusterPart

    #: Its address.
    address: Optional[str] = None

    #: The cluster's name for it.
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

    #: The thread's activity, in digests.
    doing: Optional[str] = None


#: The kind of thing that a thread asks a cluster for.
ClusterThing = Literal["lock", "semaphore", "event", "queue", "variable", "result", "wait", "answer"]


@dataclass(frozen=True)
class ClusterRequest:
    """A thread's wait in a cluster."""

    #: The thread.
    tid: int

    #: The kind of thing that it asks for.
    what: ClusterThing

    #: The name of it, or the keys of the tasks whose results are wanted.
    names: List[str]

    #: A text that no other request has. Each part stays the same for as long as this request lasts.
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

    #: A lock or a semaphore.
    what: ClusterThing

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

    #: The thread is inside the `with` block: no other thread gives it back but by misuse.
    is_entered: Optional[bool] = None


@dataclass(frozen=True)
class WaitingTask:
    """A task that waits for others."""

    #: Its key.
    task: str

    #: Keys of the tasks that it waits for.
    on: List[str]


@dataclass(frozen=True)
class Granted:
    """The leases of one lock or semaphore that a scheduler has given."""

    #: Its name.
    name: str

    #: Names of the leases.
    leases: List[str]

    #: How many may have one at a time.
    most: Optional[int] = None


@dataclass(frozen=True)
class ClusterMember:
    """A process of a cluster, by its own memory."""

    #: Dask or Ray.
    engine: JobEngine

    #: The process's roles in the cluster: several where one process starts everything.
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

    #: The waits of its threads.
    requests: List[ClusterRequest] = field(default_factory=list)

    #: Locks and semaphores of the cluster that it has.
    leases: List[ClusterLease] = field(default_factory=list)

    #: For a scheduler: tasks that wait for other tasks, with those.
    waiting: List[WaitingTask] = field(default_factory=list)

    #: For a scheduler: the leases that it has given, for each lock or semaphore.
    granted: List[Granted] = field(default_factory=list)


@dataclass(frozen=True)
class Connection:
    """One end of a TCP connection."""

    #: Its descriptor; the lowest if there are several.
    fd: int

    #: Address and port of this end.
    local: str

    #: Address and port of the other end.
    remote: str

    #: `established`, `close-wait`, ...
    state: str

    #: Bytes that have arrived and were not read.
    unread: int

    #: Bytes that were sent and not acknowledged.
    unsent: int

    #: Bytes that a rank's connection has carried since it was opened, both ways together, if the kernel counts them.
    #: (Since 1.1.)
    bytes: Optional[int] = None


@dataclass(frozen=True)
class GpuCollective:
    """A collective of NCCL."""

    #: `AllReduce`, `SendRecv`; null if the kernel serves several.
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

    #: The file, as the compiler noted it.
    file: str

    #: The line.
    line: int

    #: The function, if it was inlined or called.
    function: Optional[str] = None


@dataclass(frozen=True)
class GpuPlace:
    """Threads of a kernel on one line, or at one address."""

    #: Source lines, the innermost inlined call first; empty if the code was compiled without them.
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

    #: Its index in the block.
    example_thread: List[int]

    #: The function of the code, if it is not the kernel itself.
    function: Optional[str] = None

    #: Calls that led there, the innermost first.
    calls: List[GpuLine] = field(default_factory=list)


@dataclass(frozen=True)
class GpuKernel:
    """A kernel that ran."""

    #: Its name for people, without parameters.
    name: str

    #: Its name in the file.
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

    #: Blocks of a cluster; zeros if it has none.
    cluster: List[int]

    #: Its arguments, as words of eight bytes.
    arguments: List[str]

    #: How many blocks, warps and threads were on the GPU.
    blocks: int

    #: Warps.
    warps: int

    #: Threads.
    threads: int

    #: Their places, the one with most threads first.
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

    #: The number of affected threads; 0 if only the multiprocessor reports the error.
    threads: int

    #: The kernel, if known.
    kernel: Optional[str] = None

    #: The instruction.
    address: Optional[str] = None


@dataclass(frozen=True)
class Gpu:
    """A GPU that a process used, from a core of it."""

    #: CUDA's number for it in the process.
    device: int

    #: `NVIDIA H100 80GB HBM3`.
    name: str

    #: `sm_90`.
    architecture: str

    #: The file.
    core: str

    #: Kernels that had begun and not ended. Kernels that had not begun are unknown.
    kernels: List[GpuKernel]

    #: Its multiprocessors.
    multiprocessors: int = 0

    #: The driver that wrote the core.
    driver: Optional[str] = None

    #: Errors of kernels.
    errors: List[GpuError] = field(default_factory=list)


@dataclass(frozen=True)
class Enqueued:
    """The last operation of a group of ranks that a process has enqueued. The process has not reached later
    operations."""

    #: `gloo`, `nccl`.
    backend: str

    #: The group.
    group: str

    #: Its number in the group.
    last: int

    #: `all_reduce`.
    op: str

    #: It is done.
    over: bool

    #: The number of ranks in the group.
    size: Optional[int] = None


#: The state of a thread, by the kernel.
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
    """An error that a call into CUDA's driver has returned."""

    #: Its number: 700.
    number: int

    #: The call that returned it first, since the last other error.
    function: str

    #: The time since then, in milliseconds.
    since_ms: Optional[int] = None


@dataclass(frozen=True)
class CudaCall:
    """A call into CUDA's driver."""

    #: `cuStreamSynchronize`, as the program has requested it.
    function: str

    #: Its first four argument words, in hexadecimal digits. A function with fewer arguments ignores the rest.
    arguments: List[str]

    #: The time since its start, in milliseconds.
    since_ms: Optional[int] = None

    #: Its result; absent while the thread is in the call.
    result: Optional[int] = None

    #: The last error that a call of the thread has returned.
    error: Optional[CudaCallError] = None


#: The kind of a merged frame.
FrameKind = Literal["native", "inline", "python", "boundary"]


#: The way in which a native frame was found.
Trust = Literal["cfi", "frame-pointer", "scan"]


#: The provenance of a frame's code, if known and not the program's.
Library = Literal["c", "cuda", "nccl", "python", "rust"]


@dataclass(frozen=True)
class Frame:
    """One frame."""

    #: The kind of the frame.
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

    #: The way in which it was found, for a native frame.
    trust: Optional[Trust] = None

    #: The provenance of its code, if known and not the program's.
    library: Optional[Library] = None

    #: The name of its code's owner for people: `CPython`, `pytest`. The program's own code has none. (Since 1.1.)
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

    #: Its name, if it is a call that waits.
    name: Optional[str] = None


@dataclass(frozen=True)
class NativeFrame:
    """A native frame before merging."""

    #: Instruction pointer.
    pc: str

    #: Stack pointer.
    sp: str

    #: The way in which it was found.
    trust: Trust

    #: Callee-saved registers that are known there: name and value; in the innermost frames only.
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

    #: The resource at this address.
    resource: str

    #: Address of the first word.
    address: str

    #: Words of four bytes, as gdb's `x/16xw` prints them.
    words: List[str]


@dataclass(frozen=True)
class Working:
    """The captured data of one thread."""

    #: Registers at the stop: name and value.
    registers: List[List[str]]

    #: Native frames as they were unwound, innermost first, with those that run Python.
    native: List[NativeFrame]

    #: The reason why there are no more frames.
    end: str

    #: Memory of the resources that it waits for and holds, if they lie in memory.
    memory: List[Words]

    #: The system call that it is in.
    system_call: Optional[SystemCall] = None


@dataclass(frozen=True)
class Thread:
    """One thread."""

    #: Thread id.
    tid: int

    #: Thread id in the target's own PID namespace.
    ns_tid: int

    #: Name from Python, else the kernel's.
    name: str

    #: The kernel's name.
    os_name: str

    #: Its state, by the kernel.
    state: ThreadState

    #: Merged frames, innermost first.
    frames: List[Frame]

    #: Its purpose, or its framework, in one phrase.
    role: Optional[str] = None

    #: The error that CUDA's runtime keeps for it until the program requests the error. (Since 1.1.)
    cuda_error: Optional[CudaError] = None

    #: Its last call into CUDA's driver, if the recorder saw it. (Since 1.1.)
    cuda_call: Optional[CudaCall] = None

    #: The call: the entry point of CUDA or the C library that has a known name, a function of Python's library that the
    #: program called, or a line of the program itself.
    call: Optional[int] = None

    #: The line of the program that made the call, if that is another frame.
    caller: Optional[int] = None

    #: The steps of reading it, on request.
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

    #: The identity of the process: its host, and its place in a job, where they are known. (Since 1.1.)
    identity: Optional[Identity] = None

    #: Its role in a cluster of workers, such as Dask's. (Since 1.1.)
    cluster: Optional[ClusterMember] = None

    #: Its TCP connections. (Since 1.1.)
    sockets: List[Connection] = field(default_factory=list)

    #: Its GPUs, if there are cores of them.
    gpus: List[Gpu] = field(default_factory=list)

    #: The last operation that it enqueued in each group of ranks, by PyTorch's Flight Recorder in its memory. (Since
    #: 1.1.)
    enqueued: List[Enqueued] = field(default_factory=list)


#: The awaited part of a resource, where that is not the whole.
Wanted = Literal["data", "answer", "room", "connection", "end"]


@dataclass(frozen=True)
class Place:
    """The location of an object, as far as it shows the owner."""

    #: Which one it is.
    kind: Literal["module", "file", "stack", "library", "heap"]

    #: What or whose.
    of: Optional[str] = None


@dataclass(frozen=True)
class Resource:
    """A lock or another object that something waits for."""

    #: `r1`, `r2`, ...
    id: str

    #: A kind of the contract.
    kind: str

    #: Process in which `address` lies.
    process: str

    #: Its name for people.
    label: str

    #: Further facts, by name.
    state: Dict[str, Any]

    #: Address.
    address: Optional[str] = None

    #: The awaited part of it, where that is not the whole.
    wanted: Optional[Wanted] = None

    #: Its kind or identity: "mutex", "asyncio.Lock", `pipe:[4026]`.
    noun: Optional[str] = None

    #: The program's name for it.
    name: Optional[str] = None

    #: Its distance in bytes from the start of the named object.
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

    #: The task that is suspended there, where the thread of its loop holds the lock for it: `Task-6 (across)`. (Since
    #: 1.2.)
    task: Optional[str] = None

    #: Where that task is suspended: `app.py:21`. (Since 1.2.)
    suspended_at: Optional[str] = None


@dataclass(frozen=True)
class Callback:
    """A function that a call called back."""

    #: Index of its frame; null on the way into it.
    frame: Optional[int] = None


#: How sure a wait or a hold is.
Certainty = Literal["candidate", "inferred", "exact"]


#: The proof of a link or a finding, the weakest first. A whole is as strong as its weakest part.
Proof = Literal["absence", "code", "recorded"]


@dataclass(frozen=True)
class Wait:
    """One wait."""

    #: Process of the waiter.
    process: str

    #: The resource that it waits for.
    resource: str

    #: `all` or `any` holders must release it.
    needs: Needs

    #: Whether the wait ends by a time-out.
    timed: bool

    #: Its certainty.
    certainty: Certainty

    #: The evidence, in sentences.
    evidence: List[str]

    #: Waiting thread; null if a resource waits.
    tid: Optional[int] = None

    #: The resource that waits, for a waiter that is no thread.
    waiter_resource: Optional[str] = None

    #: `read`, `write`, ...
    mode: Optional[str] = None

    #: Whether each try has a time-out and the code around it asks again for ever: then `timed` is not set. (Since 1.2.)
    retried: Optional[bool] = None

    #: The time since the thread went to sleep, in milliseconds.
    since_ms: Optional[int] = None

    #: Index of the waiting frame.
    frame: Optional[int] = None

    #: The call: the entry point of CUDA or the C library that has a known name, a function of Python's library that the
    #: program called, or a line of the program itself.
    call: Optional[int] = None

    #: The line of the program that made the call, if that is another frame.
    caller: Optional[int] = None

    #: The line of the wait, for a waiter without frames: a task. (Since 1.1.)
    place: Optional[TakenAt] = None

    #: It waits in a callback of the call that took the waiter's hold.
    callback: Optional[Callback] = None

    #: Its proof: `recorded`, `code` or `absence`. (Since 1.2.)
    proof: Proof = "absence"

    #: Sentences about threads and events that could end it beside its holders, and do not wait as far as is known: the
    #: first few. (Since 1.2.)
    could_end: List[str] = field(default_factory=list)


#: Why a holder can never let go.
Gone = Literal["exited", "left-in-parent", "process-dead"]


#: The observer of a hold that neither the lock nor the code of a thread shows.
HoldSource = Literal["recorder"]


@dataclass(frozen=True)
class Hold:
    """One hold."""

    #: Process of the holder.
    process: str

    #: The resource that it holds.
    resource: str

    #: Its certainty.
    certainty: Certainty

    #: The evidence, in sentences.
    evidence: List[str]

    #: Holding thread (its former tid when gone); null if a whole process holds.
    tid: Optional[int] = None

    #: Its id in `resources`, if a task or a kernel of the GPU holds. (Since 1.1.)
    holder_resource: Optional[str] = None

    #: Its rank, if a rank of a job holds. (Since 1.1.)
    holder_rank: Optional[int] = None

    #: The reason why the holder can never release it.
    gone: Optional[Gone] = None

    #: Whether the holder is a process that was not captured; `process` is the waiter's then. (Since 1.2.)
    not_captured: Optional[bool] = None

    #: `read`, `write`.
    mode: Optional[str] = None

    #: Index of the frame that took it.
    frame: Optional[int] = None

    #: The line where it was taken, if known: the frame has gone on since. (Since 1.1.)
    taken: Optional[TakenAt] = None

    #: The time since it was taken, in milliseconds, if the recorder saw it. (Since 1.1.)
    since_ms: Optional[int] = None

    #: `recorder`: the recorder saw the call that took it (`lockscope run --record`). (Since 1.1.)
    source: Optional[HoldSource] = None

    #: The call: the entry point of CUDA or the C library that has a known name, a function of Python's library that the
    #: program called, or a line of the program itself.
    call: Optional[int] = None

    #: The line of the program that made the call, if that is another frame.
    caller: Optional[int] = None

    #: Its proof: `recorded`, `code` or `absence`. (Since 1.2.)
    proof: Proof = "absence"


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

    #: Holding thread; null if a process or a resource holds.
    holder: Optional[int] = None

    #: The resource that holds, for a holder that is no thread.
    holder_resource: Optional[str] = None

    #: Its proof: the weaker of its wait's and its hold's. (Since 1.2.)
    proof: Proof = "absence"


@dataclass(frozen=True)
class Cycle:
    """A cycle of the wait-for graph."""

    #: The weakest of its edges.
    certainty: Certainty

    #: Edges in order: the holder of one is the waiter of the next.
    edges: List[Edge]


#: The severity of a finding.
Severity = Literal["error", "warning", "note"]


#: Whether a finding is about something that happened. A finding without a class is.
FindingClass = Literal["possible"]


@dataclass(frozen=True)
class Finding:
    """A recognised situation."""

    #: Its code in the contract.
    code: str

    #: Its severity.
    severity: Severity

    #: A headline.
    title: str

    #: The events, in sentences.
    message: str

    #: Participating threads.
    threads: List[ThreadReference]

    #: Participating resources.
    resources: List[str]

    #: The recommended changes.
    help: List[str]

    #: Public reports of the same problem.
    references: List[str]

    #: `possible`: it did not happen, but could. (Since 1.1.)
    class_: Optional[FindingClass] = None

    #: Its certainty: `exact` only if all of its premises were read.
    certainty: Certainty = "inferred"

    #: Its proof: the weakest of its premises. (Since 1.2.)
    proof: Proof = "absence"

    #: For a wait without end: everything that could have ended it, and why it cannot.
    ruled_out: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Gap:
    """Something that could not be read or decided, with the reason. Gaps are part of every report."""

    #: The missing data: "stack of thread 543", "readers of rwlock 0x..".
    what: str

    #: Why, and where there is one, the next thing to try.
    why: str


@dataclass(frozen=True)
class RankGroup:
    """Ranks with the same activity."""

    #: `0-2,5`.
    ranks: str

    #: The number of ranks.
    count: int

    #: The verdict on each rank alone.
    verdict: Verdict

    #: Their common wait, and its place.
    doing: str


@dataclass(frozen=True)
class JobRanks:
    """All ranks of a job."""

    #: Its engine.
    engine: JobEngine

    #: Ranks that have a sample: `0-2,5`.
    reported: str

    #: Ranks without a sample.
    missing: str

    #: Missing ranks that have ended.
    ended: str

    #: Each rank was sampled in two rounds.
    two_rounds: bool

    #: Ranks with the same activity, the rarest group first.
    groups: List[RankGroup]

    #: Its name: engine, id and step.
    job: Optional[str] = None

    #: The noun for a member that has no rank: `process`.
    member: Optional[str] = None

    #: The number of ranks, if a launcher names it.
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
    """An answer of NCCL's RAS: the operations that each rank has launched, in communicators without a launch for a
    while."""

    #: The address that was queried.
    address: str

    #: Those that have a process of this report.
    communicators: List[NcclCommunicator]


@dataclass(frozen=True)
class RegistersRead:
    """How many threads' registers were read in which way."""

    #: By a stop of the thread.
    by_stop: int

    #: All registers of a sleeping thread, by an eBPF task iterator.
    asleep_by_ebpf: int

    #: System call, stack pointer and pc of a sleeping thread, by /proc.
    asleep_by_proc: int

    #: How often threads that did not come to their stop in time were stopped again, in the sample with the most of
    #: these.
    asked_again: int = 0


@dataclass(frozen=True)
class Capture:
    """Statistics of the samples."""

    #: Number of captured threads.
    threads: int

    #: The longest time that a process was stopped, in microseconds.
    pause_us: int

    #: Wall time of the whole capture and analysis, in microseconds.
    total_us: int

    #: Number of samples.
    looks: int

    #: How threads' registers were read in the last sample. (Since 1.1.)
    registers: RegistersRead = field(default_factory=lambda: RegistersRead(**{'by_stop': 0, 'asleep_by_ebpf': 0, 'asleep_by_proc': 0, 'asked_again': 0}))

    #: Start of the first sample, by the machine's clock (RFC 3339, UTC), if known. (Since 1.1.)
    began: Optional[str] = None

    #: End of the last sample. (Since 1.1.)
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

    #: The source of the facts.
    source: Source

    #: The verdict.
    verdict: Verdict

    #: The sentence of the text report.
    summary: str

    #: Captured processes.
    processes: List[Process]

    #: Locks and other objects that something waits for.
    resources: List[Resource]

    #: Waits.
    waits: List[Wait]

    #: Holds.
    holds: List[Hold]

    #: Cycles, the shortest first, at most 50, each minimal.
    cycles: List[Cycle]

    #: Findings, the most important first.
    findings: List[Finding]

    #: Facts that could not be read or decided.
    gaps: List[Gap]

    #: Statistics of the samples.
    capture: Capture

    #: The machine that the processes ran on, if known. (Since 1.1.)
    host: Optional[Host] = None

    #: One sentence that sums up the report. (Since 1.1.)
    sentence: Optional[str] = None

    #: The participants, at the lines of source that matter. If nothing is wrong, the main thread. (Since 1.1.)
    scenes: List[Participant] = field(default_factory=list)

    #: Threads that do not take part, and cannot go on because of the cycles. Without cycles: because of the locks whose
    #: owner is gone, else because of the threads of the first finding that is no mere note.
    victims: List[ThreadReference] = field(default_factory=list)

    #: Tasks and other resources that wait as threads do, and cannot go on for the same reason: their ids. (Since 1.2.)
    victim_resources: List[str] = field(default_factory=list)

    #: The origin of the prediction, if threads were held back until this happened (`lockscope run --provoke`). (Since
    #: 1.2.)
    made_to_happen: Optional[str] = None

    #: All ranks of a job, in groups, if the report is on a job. (Since 1.1.)
    job: Optional[JobRanks] = None

    #: The answers of NCCL's RAS, if a process waits for its GPU. (Since 1.1.)
    nccl_ras: List[NcclRas] = field(default_factory=list)
