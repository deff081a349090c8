//! Requests cores of the GPUs from NVIDIA's drivers in processes, and adds these to a sample.
//!
//! In: a sample, and for each process the FIFO that its driver reads and the file that it writes. Out: the sample with
//! the kernels on the GPUs, or with gaps. The driver ends the process when it has written, unless a flag forbids it, so
//! this comes after everything else.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::analysis::{self, Keep, Outcome};
use crate::gpu::GpuCore;
use crate::image::core::elf::Bytes;
use crate::image::core::{CoreFile, Places};
use crate::image::live::parse_maps;
use crate::image::{Gap, Mapping};
use crate::limits::cuda::ARGUMENTS_READ;
use crate::limits::run::{COPIED_IN_ALL, COPIED_OF_A_MAPPING, MOST_ENTRIES};

/// A device full of threads takes 5 s, a rank of PyTorch 3 s (measured).
pub(crate) const LONGEST_DUMP: Duration = Duration::from_secs(30);
const BETWEEN_CHECKS: Duration = Duration::from_millis(50);

/// A process whose driver can write a core.
#[derive(Debug)]
pub(super) struct Driver {
    /// Its id in its own PID namespace.
    pub(super) id: i32,
    /// Processes here that have this id there.
    pub(super) pids: Vec<i32>,
    /// The FIFO that the driver reads, or a descriptor of it.
    pub(super) pipe: PathBuf,
    /// Where it writes.
    pub(super) core: CoreName,
}

/// Where a driver writes its core.
#[derive(Debug)]
pub(super) struct CoreName {
    folder: PathBuf,
    before: String,
    /// The part of the name behind an unknown time, if the name has one.
    after: Option<String>,
    /// Cores of earlier days.
    old: Vec<PathBuf>,
    /// Keeps the folder at hand when its process, by which it was found, has ended.
    _open: Option<File>,
}

impl CoreName {
    /// A file whose name is known.
    pub(super) fn exactly(path: PathBuf) -> CoreName {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
        CoreName { folder, before: name, after: None, old: Vec::new(), _open: None }
    }

    /// A file in `folder`, as seen by a process, whose name has a time where `name` has `%t`.
    pub(super) fn within(folder: &Path, name: &str) -> std::io::Result<CoreName> {
        let open = File::open(folder)?;
        let (before, after) = match name.split_once("%t") {
            Some((before, after)) => (before, Some(after.to_owned())),
            None => (name, None),
        };
        let folder = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()));
        let mut found = CoreName { folder, before: before.to_owned(), after, old: Vec::new(), _open: Some(open) };
        found.old = found.fitting();
        Ok(found)
    }

    /// The file, once it is there; no link and nothing else that has such a name.
    fn find(&self) -> Option<PathBuf> {
        let exact = || vec![self.folder.join(&self.before)];
        let fitting = if self.after.is_some() { self.fitting() } else { exact() };
        let is_file = |path: &PathBuf| std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
        fitting.into_iter().find(|path| !self.old.contains(path) && is_file(path))
    }

    fn fitting(&self) -> Vec<PathBuf> {
        let Some(after) = &self.after else { return Vec::new() };
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        let fits = |name: &str| {
            let rest = name.strip_prefix(self.before.as_str()).and_then(|rest| rest.strip_suffix(after.as_str()));
            rest.is_some_and(|time| !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let entries = entries.flatten().take(MOST_ENTRIES).map(|entry| entry.path());
        entries.filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(fits)).collect()
    }
}

/// The state of a process after its core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IsLeft {
    /// It is stopped, and about to be ended: it could go on with an error otherwise.
    Standing,
    /// It is left to itself.
    Alone,
}

/// Ask `drivers`, and add to `outcome` what ran on their GPUs.
pub(super) fn ask(outcome: &mut Outcome, drivers: Vec<Driver>, left: IsLeft) {
    let gap = |id: i32, why: String| Gap::new(format!("a core of the GPU of process {id}"), why);
    let end = Instant::now() + LONGEST_DUMP;
    let pids = drivers.iter().filter_map(|driver| driver.pids.first().map(|pid| (driver.id, *pid)));
    let memories: BTreeMap<i32, HostMemory> = pids.filter_map(|(id, pid)| Some((id, HostMemory::of(pid)?))).collect();
    let (mut cores, mut gaps, mut asked) = (Vec::new(), Vec::new(), Vec::new());
    for driver in drivers {
        match write_to(&driver.pipe) {
            Ok(()) => asked.push(driver),
            Err(error) => gaps.push(gap(driver.id, format!("its FIFO: {error}"))),
        }
    }
    for Driver { id, pids, core, .. } in asked {
        let Some(path) = stands(&core, end) else {
            gaps.push(gap(id, format!("the driver did not write it within {} s", LONGEST_DUMP.as_secs())));
            continue;
        };
        for pid in pids.iter().filter(|_| left == IsLeft::Standing) {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGSTOP);
        }
        // Where the folder lies, not by which way it was found.
        let real = path.canonicalize();
        let name = real.as_ref().unwrap_or(&path).display().to_string();
        match Bytes::open(&path).and_then(|bytes| GpuCore::read(&bytes, &name)) {
            Ok(mut core) => {
                core.words = memories.get(&id).map(|memory| memory.words(&core)).unwrap_or_default();
                cores.push(core);
            }
            Err(error) => gaps.push(gap(id, error.to_string())),
        }
    }
    if !cores.is_empty() {
        join(outcome, &cores);
    }
    outcome.report.gaps.extend(gaps);
}

/// Writes the byte. The FIFO may have no reader: the driver reads for as long as it has its context.
fn write_to(pipe: &Path) -> std::io::Result<()> {
    if !std::fs::metadata(pipe)?.file_type().is_fifo() {
        return Err(std::io::Error::other("it is no FIFO"));
    }
    OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(pipe)?.write_all(b"1")
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

/// Wait until a core is written: it grows no more, and all that it announces is there.
fn stands(core: &CoreName, end: Instant) -> Option<PathBuf> {
    let mut before = None;
    while Instant::now() < end {
        let found = core.find().and_then(|path| {
            let size = std::fs::metadata(&path).ok().map(|metadata| metadata.len()).filter(|size| *size > 0)?;
            Some((path, size))
        });
        if let Some((path, _)) = found.as_ref().filter(|_| found == before) {
            let name = path.display().to_string();
            if Bytes::open(path).is_ok_and(|bytes| GpuCore::is_one(&bytes) && GpuCore::is_whole(&bytes, &name)) {
                return Some(path.clone());
            }
        }
        before = found;
        std::thread::sleep(BETWEEN_CHECKS);
    }
    None
}

/// A process's id in its own PID namespace.
pub(super) fn innermost_id(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_with_a_time_in_its_name_is_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(folder.path().join(name), "x").unwrap();
        write("core_17_host_5.nvcudmp");
        let name = CoreName::within(folder.path(), "core_%t_host_5.nvcudmp").unwrap();
        assert_eq!(name.find(), None, "it was there before");
        write("core_x_host_5.nvcudmp");
        write("core_18_host_6.nvcudmp");
        assert_eq!(name.find(), None, "these have other names");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("core_18_host_5.nvcudmp")).unwrap();
        assert_eq!(name.find(), None, "a link is followed nowhere");
        write("core_19_host_5.nvcudmp");
        let found = name.find().expect("it is there");
        assert_eq!(found.canonicalize().unwrap(), folder.path().canonicalize().unwrap().join("core_19_host_5.nvcudmp"));
    }
}
