//! Kernels and launches on the GPUs of a process, as data of the report.
//!
//! Plain data; the words are those of NVIDIA's driver and its documentation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::NcclCommunicator;

/// A GPU that a process used, from a core of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Gpu {
    /// CUDA's number for it in the process.
    pub device: u32,
    /// `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// `sm_90`.
    pub architecture: String,
    /// Its multiprocessors.
    #[serde(default)]
    pub multiprocessors: u32,
    /// The driver that wrote the core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The file.
    pub core: String,
    /// Kernels that had begun and not ended. Kernels that had not begun are unknown.
    pub kernels: Vec<GpuKernel>,
    /// Errors of kernels.
    #[serde(default)]
    pub errors: Vec<GpuError>,
}

/// A kernel that ran.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct GpuKernel {
    /// Its name for people, without parameters.
    pub name: String,
    /// Its name in the file.
    pub symbol: String,
    /// The driver's number of the launch.
    pub launch: u64,
    /// The context that it runs in.
    pub context: String,
    /// `active`, `pending`, `sleeping`, `terminated` or `unknown`.
    pub status: String,
    /// Whether another kernel launched it.
    pub from_gpu: bool,
    /// Blocks of the grid.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster; zeros if it has none.
    pub cluster: [u32; 3],
    /// Its arguments, as words of eight bytes.
    pub arguments: Vec<String>,
    /// The collective of NCCL that it is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective: Option<GpuCollective>,
    /// How many blocks, warps and threads were on the GPU.
    pub blocks: usize,
    /// Warps.
    pub warps: usize,
    /// Threads.
    pub threads: usize,
    /// Their places, the one with most threads first.
    pub places: Vec<GpuPlace>,
}

/// A collective of NCCL.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct GpuCollective {
    /// `AllReduce`, `SendRecv`; null if the kernel serves several.
    pub operation: Option<String>,
    /// `Sum`.
    pub reduction: Option<String>,
    /// `f32`.
    pub element: Option<String>,
    /// `RING`.
    pub algorithm: Option<String>,
    /// `LL`.
    pub protocol: Option<String>,
}

/// Threads of a kernel on one line, or at one address.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct GpuPlace {
    /// The function of the code, if it is not the kernel itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Source lines, the innermost inlined call first; empty if the code was compiled without them.
    pub lines: Vec<GpuLine>,
    /// Calls that led there, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<GpuLine>,
    /// Program counters.
    pub addresses: Vec<String>,
    /// Blocks, warps and threads there.
    pub blocks: usize,
    /// Warps.
    pub warps: usize,
    /// Threads.
    pub threads: usize,
    /// Block of one of them.
    pub example_block: [u32; 3],
    /// Its index in the block.
    pub example_thread: [u32; 3],
}

/// A source line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct GpuLine {
    /// The function, if it was inlined or called.
    pub function: Option<String>,
    /// The file, as the compiler noted it.
    pub file: String,
    /// The line.
    pub line: u64,
}

/// An error of a kernel.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct GpuError {
    /// `illegal address`.
    pub what: String,
    /// The kernel, if known.
    pub kernel: Option<String>,
    /// The instruction.
    pub address: Option<String>,
    /// Its source lines, the innermost first.
    pub lines: Vec<GpuLine>,
    /// The number of affected threads; 0 if only the multiprocessor reports the error.
    pub threads: usize,
}

impl GpuLine {
    /// `kernels.cu:74`.
    pub fn place(&self) -> String {
        format!("{}:{}", super::short_path(&self.file), self.line)
    }
}

impl GpuPlace {
    /// The line for people: the outermost one, which is the kernel's own, and the lines inlined there.
    pub fn told(&self) -> String {
        let Some((own, inlined)) = self.lines.split_last() else {
            let address = self.addresses.first().map(String::as_str).unwrap_or_default();
            let more = if self.addresses.len() > 1 { " and near" } else { "" };
            return match &self.function {
                Some(function) => format!("in {function} at {address}{more}"),
                None => format!("at {address}{more}"),
            };
        };
        let mut text = format!("at {}", own.place());
        if let Some(inner) = inlined.last().filter(|_| !inlined.is_empty()) {
            text += &format!(" in {}", inner.function.as_deref().unwrap_or("an inlined call"));
            text += &format!(" ({})", inner.place());
        } else if let Some(function) = &self.function {
            text += &format!(" in {function}");
        }
        if let Some(caller) = self.calls.last() {
            text += &format!(", called from {}", caller.place());
        }
        text
    }
}

impl GpuKernel {
    /// `spin <<<(8, 1, 1), (64, 1, 1)>>>`.
    pub fn told(&self) -> String {
        let three = |[x, y, z]: [u32; 3]| format!("({x}, {y}, {z})");
        format!("{} <<<{}, {}>>>", self.name, three(self.grid), three(self.block))
    }
}

/// An answer of NCCL's RAS: the operations that each rank has launched, in communicators without a launch for a while.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct NcclRas {
    /// The address that was queried.
    pub address: String,
    /// Those that have a process of this report.
    pub communicators: Vec<NcclCommunicator>,
}
