//! A GPU core: what ran on the GPUs of a process, and on which lines, by the word of NVIDIA's driver.
//!
//! In: the file that the driver writes on request (`CUDA_ENABLE_USER_TRIGGERED_COREDUMP`) or at an error of a kernel.
//! Out: [`GpuCore`]: devices, contexts, kernels with their threads grouped by place, errors; plain data. Its layout is
//! public (`cudacoredump.h` of the CUDA toolkit; `layout`). Drivers append fields, so each is read only where the
//! table's element has room for it. This module decodes no instructions, and does not join the core with the host.

// Its input is foreign.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod collective;
mod image;
mod layout;
mod lines;
mod names;
mod owner;
mod places;
mod sections;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::image::Gap;
use crate::image::core::CoreError;
use crate::image::core::elf::Bytes;
pub(crate) use collective::Collective;
pub(crate) use lines::SourceLine;
pub(crate) use names::short_name;
pub(crate) use owner::GpuCores;
use sections::Sections;

/// The kernels that ran on the GPUs of one process.
#[derive(Debug, Clone, Default)]
pub(crate) struct GpuCore {
    /// The file.
    pub path: String,
    /// The driver that wrote it, `580.159`, where it says so (since 565).
    pub driver: Option<String>,
    /// Devices that the process sees; only the process's own device has contexts and kernels.
    pub devices: Vec<Device>,
    /// Words of the host's memory whose addresses kernels have, where the code that triggered the core read them with
    /// it.
    pub words: BTreeMap<u64, u32>,
    /// The unreadable parts.
    pub gaps: Vec<Gap>,
}

/// One device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Device {
    /// CUDA's number of it.
    pub number: u32,
    /// `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// `sm_90`.
    pub architecture: String,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Its contexts in the process.
    pub contexts: Vec<Context>,
    /// Kernels that had begun and not ended. One that has yet to begin is in no table.
    pub kernels: Vec<Kernel>,
    /// Errors of kernels.
    pub errors: Vec<KernelError>,
}

/// One context.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Context {
    /// Its handle: an address in the process's memory.
    pub handle: u64,
    /// The driver's thread for its events, in the process's own PID namespace (`cuda-EvtHandlr`, seen with 580).
    pub event_thread: i32,
}

/// One kernel that runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kernel {
    /// The driver's number of the launch.
    pub number: u64,
    /// The context that it runs in.
    pub context: u64,
    /// Its name for people.
    pub name: String,
    /// As it stands in the file.
    pub symbol: String,
    /// The collective that it is part of.
    pub collective: Option<Collective>,
    /// Its status, by the driver.
    pub status: Status,
    /// Whether another kernel launched it.
    pub from_gpu: bool,
    /// Blocks of the grid, threads of a block, blocks of a cluster. The driver says 1 x 1 x 1 of a cooperative grid (seen with
    /// 580): then the grid is as large as the blocks that were seen.
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: [u32; 3],
    /// Its arguments, as words of eight bytes; an argument of four takes half of one.
    pub arguments: Vec<u64>,
    /// How many blocks, warps and threads were there.
    pub seen: Seen,
    /// Where they were, most threads first.
    pub places: Vec<Place>,
}

/// How many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub blocks: usize,
    pub warps: usize,
    pub threads: usize,
}

/// Threads of a kernel on one line.
#[derive(Debug, Clone, Default)]
pub(crate) struct Place {
    /// Program counters.
    pub addresses: Vec<u64>,
    /// The function that the code belongs to, where it is not the kernel itself.
    pub function: Option<String>,
    /// Source lines, the innermost inlined call first; empty where the code has none.
    pub lines: Vec<SourceLine>,
    /// Calls that led there, the innermost first.
    pub calls: Vec<SourceLine>,
    /// How many are there.
    pub seen: Seen,
    /// Block and thread of one of them.
    pub example: ([u32; 3], [u32; 3]),
}

/// An error of a kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct KernelError {
    /// The kernel, where one is known.
    pub kernel: Option<String>,
    /// `illegal address`.
    pub what: String,
    /// Where it is known: the instruction.
    pub address: Option<u64>,
    /// Its source lines, the innermost first.
    pub lines: Vec<SourceLine>,
    /// How many threads it struck; 0 where only the multiprocessor is known.
    pub threads: usize,
}

/// A kernel's status, by the driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Status {
    /// Launched, not on the device yet.
    Pending,
    /// It runs.
    Active,
    /// It waits for kernels that it launched.
    Sleeping,
    /// It ended.
    Terminated,
    /// Not said.
    #[default]
    Unknown,
}

impl Status {
    /// The word in JSON and text.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Active => "active",
            Status::Sleeping => "sleeping",
            Status::Terminated => "terminated",
            Status::Unknown => "unknown",
        }
    }
}

impl KernelError {
    /// "kernel writes_to failed at kernels.cu:388: illegal address".
    pub(crate) fn told(&self) -> String {
        let kernel = self.kernel.as_ref().map_or("a kernel".to_owned(), |kernel| format!("kernel {kernel}"));
        let place = match (self.lines.last(), self.address) {
            (Some(line), _) => format!(" at {}:{}", line.file.rsplit('/').next().unwrap_or_default(), line.line),
            (None, Some(address)) => format!(" at {address:#x}"),
            (None, None) => String::new(),
        };
        format!("{kernel} failed{place}: {}", self.what)
    }
}

impl GpuCore {
    /// Whether a file is a GPU core, by its ELF header.
    pub(crate) fn is_one(bytes: &Bytes) -> bool {
        sections::is_gpu_core(bytes)
    }

    /// Whether all that it announces is there.
    pub(crate) fn is_whole(bytes: &Bytes, path: &str) -> bool {
        Sections::read(bytes).is_ok_and(|sections| sections.gaps(path).is_empty())
    }

    /// Read one.
    pub(crate) fn read(bytes: &Bytes, path: &str) -> Result<GpuCore, CoreError> {
        let sections = Sections::read(bytes).map_err(|why| CoreError::Damaged { path: path.to_owned(), why })?;
        let mut core = places::read(&sections);
        core.path = path.to_owned();
        core.gaps.extend(sections.gaps(path));
        Ok(core)
    }

    /// All kernels, with their devices.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = (&Device, &Kernel)> {
        self.devices.iter().flat_map(|device| device.kernels.iter().map(move |kernel| (device, kernel)))
    }

    /// Contexts that are in use.
    pub(crate) fn contexts(&self) -> impl Iterator<Item = &Context> {
        self.devices.iter().flat_map(|device| &device.contexts)
    }
}
