//! Cores of the GPUs of a command that is ended anyway.
//!
//! In: the last look at it. Out: the same with what ran on its GPUs. NVIDIA's driver writes such a core when a byte comes through a
//! FIFO that it makes at its start, for which variables have to be set before. It ends the process by SIGABRT then, so this is only
//! for what is ended anyway, and after it was looked at.
//!
//! The same variables make the driver write a core, and end the process, when a kernel fails: to forbid that
//! (CUDA_ENABLE_COREDUMP_ON_EXCEPTION=0) takes the FIFO away too. The flag `skip_abort` would keep the process, but then its
//! calls can return success after a kernel has failed. All of this was measured with driver 580. Under MPS the FIFO would be
//! another process's, so nothing is set; nor is anything that the user has set.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::analysis::{self, Keep, Outcome};
use crate::gpu::GpuCore;
use crate::image::core::elf::Bytes;
use crate::image::core::{CoreFile, Places};
use crate::image::gpu::kernel_driver;
use crate::image::live::parse_maps;
use crate::image::{Gap, Mapping, budget};
use crate::limits::cuda::ARGUMENTS_READ;
use crate::limits::run::{COPIED_IN_ALL, COPIED_OF_A_MAPPING, MOST_CORES};
use crate::report::Report;

/// The variables that are set, and those that say that the user wants something else.
const TRIGGERED: &str = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP";
const PIPE: &str = "CUDA_COREDUMP_PIPE";
const FILE: &str = "CUDA_COREDUMP_FILE";
const FLAGS: &str = "CUDA_COREDUMP_GENERATION_FLAGS";
const OTHERS: [&str; 3] =
    ["CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", "CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION"];
/// No memory, and no code twice.
const LIGHT: &str =
    "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory";
/// The first driver that this was tried with: what others do at the byte is not known.
const FIRST_DRIVER: u32 = 580;
/// A device full of threads takes 5 s, a rank of PyTorch 3 s (measured).
pub(crate) const LONGEST_DUMP: Duration = Duration::from_secs(30);
const BETWEEN_CHECKS: Duration = Duration::from_millis(50);

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
        if std::env::var_os("CUDA_MPS_PIPE_DIRECTORY").is_some() || Path::new("/tmp/nvidia-mps").exists() {
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
        let folder = tempfile::Builder::new().prefix("lockscope-gpu-").tempdir();
        Ok(GpuDumps { folder: folder.map_err(|error| format!("no folder for them: {error}"))? })
    }

    /// What the command gets beside its environment.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let path = |name: &str| self.folder.path().join(name).into_os_string();
        vec![(TRIGGERED, "1".into()), (FLAGS, LIGHT.into()), (PIPE, path("pipe_%p")), (FILE, path("gpu_%p.core"))]
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether a core was asked for: then the processes end, or are not to go on.
    pub(crate) fn were_asked_for(&self) -> bool {
        self.folder.path().join(ASKED).exists()
    }
}

impl GpuDumps {
    /// What kernels failed, by cores that drivers wrote unasked: `writes_to failed at kernels.cu:388: illegal address`.
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

/// Add to a last look what ran on the GPUs.
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
    let gap = |what: &str, why: String| Gap::new(what, why);
    let pipes = pipes(folder);
    if pipes.is_empty() {
        if waits(&outcome.report) {
            let why = "the driver made no FIFO for it: CUDA was initialised before, or is older, or the folder is out of its sight";
            outcome.report.gaps.push(gap("a core of the GPU", why.into()));
        }
        return outcome;
    }
    let _ = File::create(folder.join(ASKED));
    let (mut cores, mut gaps) = (Vec::new(), Vec::new());
    let end = Instant::now() + LONGEST_DUMP;
    let mut asked = Vec::new();
    let memories = pids.iter().filter_map(|pid| Some((innermost_id(*pid)?, HostMemory::of(*pid)?)));
    let memories: BTreeMap<i32, HostMemory> = memories.collect();
    for (id, pipe) in pipes {
        // Whoever reads it may be gone: the driver reads for as long as it has its context.
        let opened = OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(&pipe);
        match opened.and_then(|mut pipe| pipe.write_all(b"1")) {
            Ok(()) => asked.push(id),
            Err(error) => gaps.push(gap(&format!("a core of the GPU of process {id}"), format!("its FIFO: {error}"))),
        }
    }
    for id in asked {
        let path = folder.join(format!("gpu_{id}.core"));
        let what = format!("a core of the GPU of process {id}");
        if !stands(&path, end) {
            gaps.push(gap(&what, format!("the driver did not write it within {} s", LONGEST_DUMP.as_secs())));
            continue;
        }
        // It could go on with an error otherwise.
        for pid in pids.iter().filter(|pid| innermost_id(**pid) == Some(id)) {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGSTOP);
        }
        let name = path.display().to_string();
        match Bytes::open(&path).and_then(|bytes| GpuCore::read(&bytes, &name)) {
            Ok(mut core) => {
                core.words = memories.get(&id).map(|memory| memory.words(&core)).unwrap_or_default();
                cores.push(core);
            }
            Err(error) => gaps.push(gap(&what, error.to_string())),
        }
    }
    if !cores.is_empty() {
        join(&mut outcome, &cores);
    }
    outcome.report.gaps.extend(gaps);
    outcome
}

/// The host's memory that the GPU sees, of a process that is about to end.
///
/// The driver ends the process as soon as the core is written, and which words the kernels have only the core says: so the beginning
/// of each pinned allocation is copied before. These are shared mappings of /dev/zero (driver 580); memory that was registered is found
/// only while the process is still there.
struct HostMemory {
    memory: File,
    pinned: Vec<(u64, Vec<u8>)>,
}

impl HostMemory {
    /// Copy it.
    fn of(pid: i32) -> Option<HostMemory> {
        let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
        let mappings = parse_maps(&std::fs::read(format!("/proc/{pid}/maps")).ok()?);
        let is_pinned =
            |mapping: &&Mapping| mapping.shared && mapping.write && mapping.path.as_deref() == Some("/dev/zero");
        let mut pinned = Vec::new();
        let mut copied = 0;
        for mapping in mappings.iter().filter(is_pinned) {
            let size = (mapping.end - mapping.start).min(COPIED_OF_A_MAPPING);
            copied += size;
            if copied > COPIED_IN_ALL {
                break;
            }
            let mut bytes = vec![0; size as usize];
            // The first page that is not there ends it.
            let read = memory.read_at(&mut bytes, mapping.start.0).unwrap_or_default();
            bytes.truncate(read);
            pinned.push((mapping.start.0, bytes));
        }
        Some(HostMemory { memory, pinned })
    }

    /// The words whose addresses kernels have as arguments. Those of the GPU cannot be read, and are left out.
    fn words(&self, core: &GpuCore) -> BTreeMap<u64, u32> {
        let arguments = core.kernels().flat_map(|(_, kernel)| kernel.arguments.iter().copied().take(ARGUMENTS_READ));
        arguments
            .filter(|address| *address > 0 && address % 4 == 0)
            .filter_map(|address| Some((address, self.word(address)?)))
            .collect()
    }

    fn word(&self, address: u64) -> Option<u32> {
        let copied = self.pinned.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..at.checked_add(4)?)?.try_into().ok()
        });
        let now = || {
            let mut bytes = [0; 4];
            self.memory.read_exact_at(&mut bytes, address).ok()?;
            Some(bytes)
        };
        copied.or_else(now).map(u32::from_le_bytes)
    }
}

/// Look at what was captured once more, with the cores beside it.
fn join(outcome: &mut Outcome, cores: &[GpuCore]) {
    let Some(snapshot) = outcome.snapshot.clone() else { return };
    let again = CoreFile::from_bytes(snapshot).map_err(analysis::Error::from).and_then(|snapshot| {
        analysis::opened(&[PathBuf::from("snapshot")], vec![snapshot], cores, &Places::default(), Keep::Nothing, false)
    });
    let report = &mut outcome.report;
    match again {
        Ok(again) if again.report.verdict == report.verdict => {
            let mut better = again.report;
            (better.source, better.capture) = (report.source.clone(), report.capture.clone());
            let missing = report.gaps.iter().filter(|gap| !better.gaps.contains(gap)).cloned();
            let missing: Vec<Gap> = missing.collect();
            better.gaps.extend(missing);
            *report = better;
        }
        Ok(again) => {
            for (known, other) in report.processes.iter_mut().zip(again.report.processes) {
                known.gpus = other.gpus;
            }
        }
        Err(error) => report.gaps.push(Gap::new("what ran on the GPU", error.to_string())),
    }
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

/// Wait until a core is written: it grows no more, and all that it announces is there.
fn stands(path: &Path, end: Instant) -> bool {
    let mut before = None;
    while Instant::now() < end {
        let size = std::fs::metadata(path).ok().map(|metadata| metadata.len()).filter(|size| *size > 0);
        let is_whole = || {
            let name = path.display().to_string();
            Bytes::open(path).is_ok_and(|bytes| GpuCore::is_one(&bytes) && GpuCore::is_whole(&bytes, &name))
        };
        if size.is_some() && size == before && is_whole() {
            return true;
        }
        before = size;
        std::thread::sleep(BETWEEN_CHECKS);
    }
    false
}

/// A process's id in its own PID namespace.
fn innermost_id(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}
