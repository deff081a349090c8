//! What a thread is there for, or in what: frameworks, libraries and the driver, in one phrase each.
//!
//! In: a merged thread and the kernel's name of it. Out: a phrase from a table, or none. For people only: nothing is
//! decided by it.

use super::{FrameKind, Thread};

/// Where a row's text is looked for.
#[derive(Debug, Clone, Copy)]
enum Where {
    /// The kernel's name of the thread begins with it.
    Name,
    /// A native function's name contains it.
    Function,
    /// A native frame lies in a module whose name begins with it.
    Module,
    /// A Python frame's file contains it.
    File,
}

/// The first row that fits a thread tells. Threads that a library made for itself stand before the libraries that any thread may
/// be in. Sources: names and functions as seen on an H200 with PyTorch 2.11, NCCL 2.28, driver 580.159.04 and numpy 2.5;
/// paths as in the wheels of PyTorch, Numba, CuPy, JAX, RMM and UCX.
const ROLES: &[(Where, &str, &str)] = &[
    (Where::Name, "cuda-EvtHandlr", "event thread of the CUDA driver"),
    (Where::Name, "cuda0", "thread of the CUDA driver"),
    (Where::Function, "ProcessGroupNCCL::Watchdog", "watchdog of PyTorch's ProcessGroupNCCL"),
    (Where::Function, "ProcessGroupNCCL::ncclCommWatchdog", "watchdog of PyTorch's ProcessGroupNCCL"),
    (Where::Function, "ProcessGroupNCCL::HeartbeatMonitor", "heartbeat of PyTorch's ProcessGroupNCCL"),
    (Where::Name, "pt_nccl_watchdg", "watchdog of PyTorch's ProcessGroupNCCL"),
    (Where::Name, "pt_nccl_heartbt", "heartbeat of PyTorch's ProcessGroupNCCL"),
    (Where::Function, "LibUVStoreDaemon", "server of PyTorch's TCPStore"),
    (Where::Function, "TCPStoreMasterDaemon", "server of PyTorch's TCPStore"),
    (Where::Name, "pt_tcpstore", "server of PyTorch's TCPStore"),
    (Where::Function, "autograd::Engine::thread_main", "worker of PyTorch's autograd"),
    (Where::Function, "autograd::Engine::thread_init", "worker of PyTorch's autograd"),
    (Where::Name, "pt_autograd", "worker of PyTorch's autograd"),
    (Where::File, "torch/utils/data/_utils/worker.py", "worker of a PyTorch DataLoader"),
    (Where::File, "torch/utils/data/_utils/pin_memory.py", "pinning thread of a PyTorch DataLoader"),
    (Where::Function, "ncclProxyServiceUDS", "proxy service of NCCL"),
    (Where::Function, "ncclProxyService", "proxy service of NCCL"),
    (Where::Function, "ncclProxyProgress", "proxy of NCCL that moves data"),
    (Where::Function, "rasThreadMain", "monitor of NCCL (RAS)"),
    (Where::Function, "blas_thread_server", "worker of OpenBLAS"),
    (Where::Function, "gomp_thread_start", "worker of OpenMP"),
    (Where::Function, "kmp_launch_worker", "worker of OpenMP"),
    (Where::Function, "kmp_launch_thread", "worker of OpenMP"),
    (Where::Function, "CUDACachingAllocator", "in PyTorch's caching allocator"),
    (Where::Function, "c10d::ProcessGroupNCCL", "in PyTorch's ProcessGroupNCCL"),
    (Where::Module, "libnccl", "in NCCL"),
    (Where::Module, "librmm", "in RMM"),
    (Where::File, "/rmm/", "in RMM"),
    (Where::Module, "libucp", "in UCX"),
    (Where::Module, "libuct", "in UCX"),
    (Where::File, "/numba_cuda/", "in Numba's CUDA"),
    (Where::File, "numba/cuda/", "in Numba's CUDA"),
    (Where::Module, "libjax", "in JAX"),
    (Where::Module, "xla_extension", "in JAX"),
    (Where::Module, "xla_cuda_plugin", "in JAX"),
    (Where::File, "/jax/", "in JAX"),
    (Where::File, "/cupy/", "in CuPy"),
    (Where::Function, "__pyx_pf_4cupy", "in CuPy"),
    (Where::Function, "__pyx_f_4cupy", "in CuPy"),
    (Where::Function, "__pyx_pf_13cupy_backends", "in CuPy"),
    (Where::Function, "__pyx_f_13cupy_backends", "in CuPy"),
    (Where::Module, "libtorch_cuda", "in PyTorch"),
    (Where::Module, "libtorch_python", "in PyTorch"),
    (Where::Module, "libc10", "in PyTorch"),
    (Where::File, "/torch/", "in PyTorch"),
];

/// Whether this is the role of a thread that a library made for its own work: what it waits for tells nothing of the program.
pub(crate) fn is_own_work(role: &str) -> bool {
    !role.starts_with("in ") && !role.contains("DataLoader") && !role.contains("autograd")
}

/// The phrase for a thread. `name` is the kernel's.
pub(crate) fn role(thread: &Thread, name: &str) -> Option<&'static str> {
    let fits = |place: Where, text: &str| {
        let has = |native: bool, what: fn(&super::Frame) -> Option<&str>, test: fn(&str, &str) -> bool| {
            let frames = thread.frames.iter().filter(|frame| (frame.kind != FrameKind::Python) == native);
            frames.into_iter().filter_map(what).any(|found| test(found, text))
        };
        let contains: fn(&str, &str) -> bool = |found, text| found.contains(text);
        match place {
            Where::Name => name.starts_with(text),
            Where::Function => has(true, |frame| frame.function.as_deref(), contains),
            Where::Module => has(true, |frame| frame.module.as_deref(), |found, text| found.starts_with(text)),
            Where::File => has(false, |frame| frame.file.as_deref(), contains),
        }
    };
    ROLES.iter().find(|(place, text, _)| fits(*place, text)).map(|(_, _, phrase)| *phrase)
}
