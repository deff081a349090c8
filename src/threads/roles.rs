//! Which library made a thread, or runs in it: frameworks, libraries and the driver.
//!
//! In: a merged thread and the kernel's name of it. Out: a [`Role`] from a table, or none. No verdict is decided by it.

use std::collections::HashMap;

use super::{Alike, FrameKind, Thread};

/// A thread's purpose, or the library that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Role {
    /// For people: "watchdog of PyTorch's ProcessGroupNCCL", "in NCCL".
    pub(crate) phrase: &'static str,
    /// A library made the thread for its own work: its wait says nothing about the program.
    pub(crate) own_work: bool,
}

/// A thread that a library made for its own work.
const fn library(phrase: &'static str) -> Role {
    Role { phrase, own_work: true }
}

/// A thread that works for the program, or is one of its own and in a library just now.
const fn for_program(phrase: &'static str) -> Role {
    Role { phrase, own_work: false }
}

/// The thread of Rust's libtest that waits for tests to end and for nothing else.
pub(crate) const RUST_TESTS: &str = "runner of Rust's tests";

/// The data that a row's text is searched in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Where {
    /// The kernel's name of the thread begins with it.
    Name,
    /// A native function's name contains it.
    Function,
    /// A frame runs code of the whole that has this common name.
    Code,
    /// A Python frame's file contains it.
    File,
}

/// The first row that fits a thread counts. Threads that a library made for itself stand before the libraries that any
/// thread may be in. Sources: names and functions as seen on an H200 with PyTorch 2.11, NCCL 2.28, driver 580.159.04
/// and numpy 2.5; paths as in the wheels of PyTorch, Numba, CuPy, JAX, RMM and UCX.
const ROLES: &[(Where, &str, Role)] = &[
    (Where::Function, "Receiver<test::event::CompletedTest>>::recv", library(RUST_TESTS)),
    (Where::Name, "cuda-EvtHandlr", library("event thread of the CUDA driver")),
    (Where::Name, "cuda0", library("thread of the CUDA driver")),
    (Where::Function, "ProcessGroupNCCL::Watchdog", library("watchdog of PyTorch's ProcessGroupNCCL")),
    (Where::Function, "ProcessGroupNCCL::ncclCommWatchdog", library("watchdog of PyTorch's ProcessGroupNCCL")),
    (Where::Function, "ProcessGroupNCCL::HeartbeatMonitor", library("heartbeat of PyTorch's ProcessGroupNCCL")),
    (Where::Name, "pt_nccl_watchdg", library("watchdog of PyTorch's ProcessGroupNCCL")),
    (Where::Name, "pt_nccl_heartbt", library("heartbeat of PyTorch's ProcessGroupNCCL")),
    (Where::Function, "LibUVStoreDaemon", library("server of PyTorch's TCPStore")),
    (Where::Function, "TCPStoreMasterDaemon", library("server of PyTorch's TCPStore")),
    (Where::Name, "pt_tcpstore", library("server of PyTorch's TCPStore")),
    (Where::Function, "autograd::Engine::thread_main", for_program("worker of PyTorch's autograd")),
    (Where::Function, "autograd::Engine::thread_init", for_program("worker of PyTorch's autograd")),
    (Where::Name, "pt_autograd", for_program("worker of PyTorch's autograd")),
    (Where::File, "torch/utils/data/_utils/worker.py", for_program("worker of a PyTorch DataLoader")),
    (Where::File, "torch/utils/data/_utils/pin_memory.py", for_program("pinning thread of a PyTorch DataLoader")),
    (Where::Function, "ncclProxyServiceUDS", library("proxy service of NCCL")),
    (Where::Function, "ncclProxyService", library("proxy service of NCCL")),
    (Where::Function, "ncclProxyProgress", library("proxy of NCCL that moves data")),
    (Where::Function, "rasThreadMain", library("monitor of NCCL (RAS)")),
    (Where::Function, "blas_thread_server", library("worker of OpenBLAS")),
    (Where::Function, "gomp_thread_start", library("worker of OpenMP")),
    (Where::Function, "kmp_launch_worker", library("worker of OpenMP")),
    (Where::Function, "kmp_launch_thread", library("worker of OpenMP")),
    (Where::Function, "CUDACachingAllocator", for_program("in PyTorch's caching allocator")),
    (Where::Function, "c10d::ProcessGroupNCCL", for_program("in PyTorch's ProcessGroupNCCL")),
    (Where::Code, "NCCL", for_program("in NCCL")),
    (Where::Code, "rmm", for_program("in RMM")),
    (Where::Code, "ucx", for_program("in UCX")),
    (Where::Code, "numba_cuda", for_program("in Numba's CUDA")),
    (Where::File, "numba/cuda/", for_program("in Numba's CUDA")),
    (Where::Code, "jax", for_program("in JAX")),
    (Where::Code, "jaxlib", for_program("in JAX")),
    (Where::Code, "cupy", for_program("in CuPy")),
    (Where::Code, "cupyx", for_program("in CuPy")),
    (Where::Code, "cupy_backends", for_program("in CuPy")),
    (Where::Function, "__pyx_pf_4cupy", for_program("in CuPy")),
    (Where::Function, "__pyx_f_4cupy", for_program("in CuPy")),
    (Where::Function, "__pyx_pf_13cupy_backends", for_program("in CuPy")),
    (Where::Function, "__pyx_f_13cupy_backends", for_program("in CuPy")),
    (Where::Code, "torch", for_program("in PyTorch")),
];

// A row is a bit of a set.
const _: () = assert!(ROLES.len() <= 64);

/// Finds roles. Threads run mostly the same functions: each text is compared with the rows once.
#[derive(Debug, Default)]
pub(crate) struct RoleFinder<'t> {
    rows: Rows<'t>,
    /// The rows that each frame fits.
    frames: Alike<'t, u64>,
}

impl<'t> RoleFinder<'t> {
    /// The role of a thread. `name` is the kernel's.
    pub(crate) fn of(&mut self, thread: &'t Thread, name: &'t str) -> Option<&'static Role> {
        let RoleFinder { rows, frames } = self;
        let by_name = rows.of(Where::Name, Some(name));
        let frames = frames.of(&thread.frames, |frame| match frame.kind {
            FrameKind::Python => {
                rows.of(Where::File, frame.file.as_deref()) | rows.of(Where::Code, frame.origin.common_name())
            }
            _ => rows.of(Where::Function, frame.function.as_deref()) | rows.of(Where::Code, frame.origin.common_name()),
        });
        let all = frames.iter().fold(by_name, |all, (_, rows)| all | rows);
        ROLES.get(all.trailing_zeros() as usize).map(|(_, _, role)| role)
    }
}

/// Which rows a text fits in its place.
#[derive(Debug, Default)]
struct Rows<'t>(HashMap<(Where, &'t str), u64>);

impl<'t> Rows<'t> {
    fn of(&mut self, place: Where, found: Option<&'t str>) -> u64 {
        let Some(found) = found else { return 0 };
        let fits = |text: &str| match place {
            Where::Name => found.starts_with(text),
            Where::Code => found == text,
            Where::Function | Where::File => found.contains(text),
        };
        let of_place = || ROLES.iter().zip(0u32..).filter(|((of, text, _), _)| *of == place && fits(text));
        *self.0.entry((place, found)).or_insert_with(|| of_place().map(|(_, row)| 1 << row).sum())
    }
}
