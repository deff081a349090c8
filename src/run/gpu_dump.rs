//! Cores of the GPUs of a command that is ended anyway.
//!
//! In: the last sample of it. Out: the same with the kernels on its GPUs. NVIDIA's driver writes a core when a byte
//! comes through a FIFO. It makes this FIFO at its start, if variables were set before. Then it ends the process by
//! SIGABRT, so this is only for a command that is ended anyway, after its sample.
//!
//! The same variables make the driver write a core, and end the process, when a kernel fails: to forbid that
//! (CUDA_ENABLE_COREDUMP_ON_EXCEPTION=0) takes the FIFO away too. The flag `skip_abort` would keep the process, but then its
//! calls can return success after a kernel has failed. All of this was measured with driver 580. Under MPS the FIFO would be
//! another process's, so nothing is set; nor is anything that the user has set.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::gpu_trigger::{self, CoreName, Driver, IsLeft, innermost_id};
use crate::analysis::Outcome;
use crate::gpu::GpuCore;
use crate::image::core::elf::Bytes;
use crate::image::gpu::kernel_driver;
use crate::image::{Gap, budget};
use crate::limits::run::MOST_CORES;
use crate::report::Report;

/// The variables that are set, and those that say that the user wants something else.
pub(super) const TRIGGERED: &str = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP";
pub(super) const PIPE: &str = "CUDA_COREDUMP_PIPE";
pub(super) const FILE: &str = "CUDA_COREDUMP_FILE";
pub(super) const FLAGS: &str = "CUDA_COREDUMP_GENERATION_FLAGS";
const OTHERS: [&str; 3] =
    ["CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION"];
/// No memory, and no code twice.
const LIGHT: &str =
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory";
/// The first driver that this was tried with: what others do at the byte is not known.
const FIRST_DRIVER: u32 = 580;
/// The prefix of their folders' names.
const PREFIX: &str = "lockscope-gpu-";

/// Where cores are to be written.
#[derive(Debug)]
pub(crate) struct GpuDumps {
    folder: tempfile::TempDir,
}

impl GpuDumps {
    /// A private folder for them; or why there can be none.
    pub(crate) fn prepare() -> Result<GpuDumps, String> {
        let is_set = |name: &&str| std::env::var_os(name).is_some();
        let known = [TRIGGERED, PIPE, FILE, FLAGS];
        if let Some(name) = known.iter().chain(&OTHERS).find(|name| is_set(name)) {
            return Err(format!("{name} is set already, and is left as it is"));
        }
        is_proven(Path::new("/"), &|name| std::env::var_os(name).is_some())?;
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir();
        Ok(GpuDumps { folder: folder.map_err(|error| format!("no folder for them: {error}"))? })
    }

    /// Variables that the command gets beside its environment.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let path = |name: &str| self.folder.path().join(name).into_os_string();
        vec![(TRIGGERED, "1".into()), (FLAGS, LIGHT.into()), (PIPE, path("pipe_%p")), (FILE, path("gpu_%p.core"))]
    }

    /// Whether a `lockscope run` around this process has had the same done already.
    pub(crate) fn is_done_by_another() -> bool {
        std::env::var(PIPE).is_ok_and(|pipe| pipe.contains(PREFIX))
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether a core was requested: then the processes end, or must not go on.
    pub(crate) fn were_asked_for(&self) -> bool {
        self.folder.path().join(ASKED).exists()
    }
}

/// Whether a driver can write a core of its process alone, in a process with this root and these variables; or why not.
pub(super) fn is_proven(root: &Path, is_set: &dyn Fn(&str) -> bool) -> Result<(), String> {
    if is_set("CUDA_MPS_PIPE_DIRECTORY") || root.join("tmp/nvidia-mps").exists() {
        return Err("under MPS a core would be of other processes as well".into());
    }
    if Path::new("/dev/dxg").exists() {
        return Err("it was not tried under Windows".into());
    }
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok().and_then(|text| kernel_driver(&text));
    if let Some(version) = version {
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < FIRST_DRIVER) {
            return Err(format!("it was not tried with driver {version}, but with {FIRST_DRIVER} and newer"));
        }
    }
    Ok(())
}

impl GpuDumps {
    /// Kernels that failed, by cores that drivers wrote by themselves:
    /// `writes_to failed at kernels.cu:388: illegal address`.
    pub(crate) fn errors(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.folder.path()) else { return Vec::new() };
        let is_core = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "core");
        let cores = entries.flatten().map(|entry| entry.path()).filter(is_core).take(MOST_CORES);
        budget::begin();
        let read = |path: PathBuf| {
            let bytes = Bytes::open(&path).ok()?;
            GpuCore::read(&bytes, &path.display().to_string()).ok()
        };
        let devices = cores.filter_map(read).flat_map(|core| core.devices);
        let mut told: Vec<String> = devices.flat_map(|device| device.errors).map(|error| error.told()).collect();
        told.dedup();
        told
    }
}

/// Written before the first byte goes to a driver.
const ASKED: &str = "asked";

/// Add to a last sample what ran on the GPUs.
pub(super) fn add(mut outcome: Outcome, folder: &Path, pids: &[i32], is_limit: bool) -> Outcome {
    let of_gpu = |kind: &str| matches!(kind, "cuda_stream" | "cuda_event" | "cuda_device");
    let waits = |report: &Report| {
        let resources = report.resources.iter().filter(|one| of_gpu(&one.kind));
        let wanted: Vec<&str> = resources.map(|one| one.id.as_str()).collect();
        report.waits.iter().any(|wait| wanted.contains(&wait.resource.as_str()))
    };
    if !is_limit && !waits(&outcome.report) {
        return outcome;
    }
    let pipes = pipes(folder);
    if pipes.is_empty() {
        if waits(&outcome.report) {
            let why = "the driver made no FIFO for it: CUDA was initialised before, or is older, or the folder is out of its sight, or \
                       a debugger of NVIDIA runs beside it, where there are none (cuda-gdb, compute-sanitizer)";
            outcome.report.gaps.push(Gap::new("a core of the GPU", why));
        }
        return outcome;
    }
    let _ = File::create(folder.join(ASKED));
    let drivers = pipes.into_iter().map(|(id, pipe)| Driver {
        id,
        pids: pids.iter().copied().filter(|pid| innermost_id(*pid) == Some(id)).collect(),
        pipe,
        core: CoreName::exactly(folder.join(format!("gpu_{id}.core"))),
    });
    gpu_trigger::ask(&mut outcome, drivers.collect(), IsLeft::Standing);
    outcome
}

/// The FIFOs that drivers have made, by the process's id in its own namespace.
fn pipes(folder: &Path) -> Vec<(i32, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(i32, PathBuf)> = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_fifo()))
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.strip_prefix("pipe_")?.parse().ok()?;
            Some((id, entry.path()))
        })
        .collect();
    found.sort();
    found
}
