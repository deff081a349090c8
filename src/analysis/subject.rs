//! Things that lockscope can sample: running processes, core files, snapshots.
//!
//! In: what the user named. Out: a [`Subject`]: samples of it, one after the other, and whatever is known of it
//! beforehand. Whether one sample is enough is not decided here.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::rest::Members;
use super::{AttachOptions, Error, awaited};
use crate::gpu::GpuCore;
use crate::image::core::{self, CoreError, Places};
use crate::image::gpu::GpuUse;
use crate::image::live::{self, LiveTarget, Options};
use crate::image::taken::{Taken, timestamp};
use crate::image::{Addr, Gap, Image, ProcessImage};
use crate::limits::analysis::MOST_LOOKS;
use crate::modules::Modules;
use crate::python::Python;
use crate::report::{Source, SourceKind};
use crate::snapshot::{self, Known, RecordedLook};
use crate::symbols::SymbolCache;
use crate::unwind::NativeStack;
use crate::waits::Observations;

const PROC: &str = "/proc";

/// Something that lockscope can sample.
pub(super) trait Subject {
    /// The next sample.
    fn look(&mut self) -> Result<Image, Error>;
    /// Whether all that analysis read of the last sample was of one instant.
    fn is_of_one_instant(&self) -> bool;
    /// Whether a word of a process was read at another instant than the registers; where that is not known of each, as of all.
    fn is_late(&self, _pid: i32, _word: Addr) -> bool {
        !self.is_of_one_instant()
    }
    /// Stop these threads at the next sample, though they sleep. Returns whether that sample will show more of them
    /// than the last.
    fn stop(&mut self, _threads: BTreeSet<i32>) -> bool {
        false
    }
    /// Repeats a sample that was of no use; returns whether that is possible.
    fn retake(&mut self) -> bool {
        false
    }
    /// Whether these threads have slept on since the last sample, and these words are the same.
    fn has_rested(&mut self, _members: &Members) -> bool {
        false
    }
    /// Take those in that the processes of the last sample wait for; whether there are such.
    fn follow(&mut self, _image: &Image, _observations: &Observations) -> bool {
        false
    }
    /// Also sample the descendants that sleep. Returns whether there are any.
    fn follow_asleep(&mut self) -> bool {
        false
    }
    /// Whether another sample can be taken.
    fn has_more(&self) -> bool;
    /// Samples are taken now, so that the time between them counts.
    fn is_live(&self) -> bool {
        false
    }
    /// Nothing can have moved between two samples, so that one is enough.
    fn is_frozen(&self) -> bool {
        false
    }
    /// The modules of a process of the last sample, where no file is there to find them in.
    fn modules(&self, _position: usize, _process: &ProcessImage) -> Option<Modules> {
        None
    }
    /// Symbols that were already looked up in the modules.
    fn symbol_cache(&self, _position: usize) -> SymbolCache {
        SymbolCache::default()
    }
    /// The native stacks of a process of the last sample, where they were unwound before.
    fn stacks(&self, _position: usize) -> Option<Vec<NativeStack>> {
        None
    }
    /// Adds names that the own walk lacks. Returns whether anything beside the memory was queried.
    fn complete(&mut self, _position: usize, _process: &ProcessImage, _python: &mut Option<Python>) -> bool {
        false
    }
    /// How busy the GPUs are, as far as that is known.
    fn gpu(&self, image: &Image) -> Option<GpuUse> {
        image.kernel.gpu.clone()
    }
    /// Gaps that analysis of the last sample met, with their reasons.
    fn late_gaps(&self) -> Vec<Gap> {
        Vec::new()
    }
    /// For the report.
    fn source(&self) -> Source;
}

/// Running processes.
#[derive(Debug)]
pub(super) struct Live {
    target: LiveTarget,
    looks: u32,
    locals: bool,
    follows: bool,
    offspring: bool,
    nccl_ras: bool,
}

impl Live {
    pub(super) fn open(options: &AttachOptions) -> Result<Live, Error> {
        let target = LiveTarget::open(Options {
            pids: options.pids.clone(),
            tree: options.tree,
            found: options.found,
            max_pause: options.max_pause,
            stopping: options.stopping,
            proc_root: PROC.into(),
        })?;
        let follows = options.follow && !options.tree;
        let offspring = options.offspring && !options.tree;
        Ok(Live { target, looks: 0, locals: options.locals, follows, offspring, nccl_ras: options.nccl_ras })
    }
}

impl Subject for Live {
    fn look(&mut self) -> Result<Image, Error> {
        self.looks += 1;
        let began = timestamp(SystemTime::now());
        let mut image = self.target.look()?;
        image.kernel.dead_children = self.target.dead_children();
        image.kernel.passed_over = if self.offspring { self.target.passed_over() } else { 0 };
        let host = live::host::this(Path::new(PROC));
        image.taken = Some(Taken { host, began, ended: timestamp(SystemTime::now()) });
        Ok(image)
    }

    fn is_of_one_instant(&self) -> bool {
        self.target.is_of_one_instant()
    }

    fn is_late(&self, pid: i32, word: Addr) -> bool {
        self.target.is_late(pid, word)
    }

    fn stop(&mut self, threads: BTreeSet<i32>) -> bool {
        self.target.stop(threads)
    }

    fn follow(&mut self, image: &Image, observations: &Observations) -> bool {
        // The sample that found the processes does not count towards confirmation.
        let follows = self.follows && self.target.follow(&awaited::outside(image, observations));
        self.looks -= u32::from(follows);
        follows
    }

    fn follow_asleep(&mut self) -> bool {
        let follows = self.offspring && self.target.follow_asleep();
        self.looks -= u32::from(follows);
        follows
    }

    fn retake(&mut self) -> bool {
        self.looks = self.looks.saturating_sub(1);
        true
    }

    fn has_rested(&mut self, members: &Members) -> bool {
        self.target.has_rested(&members.threads, &members.words)
    }

    fn has_more(&self) -> bool {
        self.looks < MOST_LOOKS
    }

    fn is_live(&self) -> bool {
        true
    }

    fn late_gaps(&self) -> Vec<Gap> {
        self.target.late_gaps()
    }

    fn complete(&mut self, _position: usize, process: &ProcessImage, python: &mut Option<Python>) -> bool {
        match python {
            None => {
                *python = super::pyspy::threads_of_3_6(process);
                python.is_some()
            }
            Some(python) if self.locals || python.is_incomplete() => {
                super::pyspy::enrich(process.pid, python, self.locals);
                true
            }
            Some(_) => false,
        }
    }

    fn gpu(&self, image: &Image) -> Option<GpuUse> {
        Some(live::gpu::ask(image, self.nccl_ras))
    }

    fn source(&self) -> Source {
        Source { kind: SourceKind::Live, path: None }
    }
}

/// Core files, each of one process.
pub(super) struct Cores {
    image: Option<Image>,
    path: PathBuf,
}

impl Cores {
    pub(super) fn open(paths: &[PathBuf], cores: Vec<core::CoreFile>, places: &Places) -> Result<Cores, CoreError> {
        let mut image = Image::default();
        for (path, core) in paths.iter().zip(cores) {
            let (process, gaps) = core::process(core, path, places)?;
            if image.processes.iter().any(|known| known.pid == process.pid) {
                return Err(CoreError::Twice { path: path.display().to_string(), pid: process.pid });
            }
            image.processes.push(process);
            image.gaps.extend(gaps);
        }
        let path = paths.first().map(PathBuf::as_path).unwrap_or(Path::new("")).to_path_buf();
        Ok(Cores { image: Some(image), path })
    }
}

impl Cores {
    /// Cores of GPUs alone: one placeholder process stands for them.
    pub(super) fn of_gpus(paths: &[PathBuf], cores: &[GpuCore]) -> Cores {
        let processes = cores.iter().take(1).map(|_| ProcessImage::unknown()).collect();
        let path = paths.first().cloned().unwrap_or_default();
        let gaps = vec![Gap::new(
            "the threads of the process",
            "a core of a GPU has none: give a core or a snapshot of the process beside it, to see who waits for which kernel",
        )];
        Cores { image: Some(Image { processes, gaps, ..Image::default() }), path }
    }
}

impl Subject for Cores {
    fn look(&mut self) -> Result<Image, Error> {
        self.image.take().ok_or(Error::NoMoreLooks)
    }

    fn is_of_one_instant(&self) -> bool {
        true
    }

    fn has_more(&self) -> bool {
        false
    }

    fn is_frozen(&self) -> bool {
        true
    }

    fn source(&self) -> Source {
        Source { kind: SourceKind::Core, path: Some(self.path.display().to_string()) }
    }
}

/// A snapshot.
pub(super) struct Recorded {
    looks: VecDeque<RecordedLook>,
    of_one_instant: bool,
    known: Vec<Known>,
    path: PathBuf,
}

impl Recorded {
    pub(super) fn open(path: &Path, core: &core::CoreFile, places: &Places) -> Result<Recorded, CoreError> {
        let looks = snapshot::read(core, path, places)?.into();
        Ok(Recorded { looks, of_one_instant: false, known: Vec::new(), path: path.to_path_buf() })
    }
}

impl Subject for Recorded {
    fn look(&mut self) -> Result<Image, Error> {
        let look = self.looks.pop_front().ok_or(Error::NoMoreLooks)?;
        (self.of_one_instant, self.known) = (look.of_one_instant, look.known);
        Ok(look.image)
    }

    fn is_of_one_instant(&self) -> bool {
        self.of_one_instant
    }

    fn has_more(&self) -> bool {
        !self.looks.is_empty()
    }

    fn modules(&self, position: usize, process: &ProcessImage) -> Option<Modules> {
        Some(Modules::recorded(&self.known.get(position)?.modules, process))
    }

    fn symbol_cache(&self, position: usize) -> SymbolCache {
        self.known.get(position).map(|known| known.answers.clone()).unwrap_or_default()
    }

    fn stacks(&self, position: usize) -> Option<Vec<NativeStack>> {
        Some(self.known.get(position)?.stacks.clone())
    }

    fn complete(&mut self, position: usize, _process: &ProcessImage, python: &mut Option<Python>) -> bool {
        let help = self.known.get(position).and_then(|known| known.help.as_ref());
        help.map(|help| help.apply(python)).is_some()
    }

    fn source(&self) -> Source {
        Source { kind: SourceKind::Snapshot, path: Some(self.path.display().to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::gpu_errors::DriverError;
    use crate::report::Verdict;

    /// A real process that waits for its GPU, on a machine whose kernel's driver has written these errors.
    fn looked_at(errors: &[DriverError]) -> super::super::Outcome {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/gpu/endless-kernel.snapshot.zst");
        let core = core::elf::Bytes::open(&path)
            .and_then(|bytes| core::CoreFile::parse(bytes, "endless-kernel"))
            .expect("a snapshot");
        let mut recorded = Recorded::open(&path, &core, &Places::default()).expect("a snapshot");
        for look in &mut recorded.looks {
            look.image.kernel.gpu.get_or_insert_default().errors = errors.to_vec();
        }
        super::super::examine(&mut recorded, &[], super::super::Keep::Nothing, false).expect("a report").0
    }

    #[test]
    fn who_waits_for_a_gpu_that_is_gone_is_stuck() {
        let error = |number, at_ms| DriverError { at_ms, bus: "0000:00:06".into(), device: Some(0), number, pid: None };
        let codes = |outcome: &super::super::Outcome| {
            outcome.report.findings.iter().map(|one| one.code.clone()).collect::<Vec<_>>()
        };
        let healthy = looked_at(&[]);
        assert_eq!((healthy.report.verdict, codes(&healthy)), (Verdict::Blocked, vec!["waiting-for-gpu".into()]));
        let gone = looked_at(&[error(79, u64::MAX / 2)]);
        assert_eq!(gone.report.verdict, Verdict::Stuck, "{:?}", gone.report.findings);
        assert!(gone.report.summary.contains("it has fallen off the bus"), "{}", gone.report.summary);
        assert_eq!(codes(&gone)[0], "gpu-error-behind-hang", "{:?}", codes(&gone));
        // Before the process began; and of a kernel, which leaves the device well.
        assert_eq!(looked_at(&[error(79, 0)]).report.verdict, Verdict::Blocked);
        let kernel = looked_at(&[error(31, u64::MAX / 2)]);
        assert_eq!(kernel.report.verdict, Verdict::Blocked);
        assert!(codes(&kernel).contains(&"gpu-error-behind-hang".into()), "{:?}", codes(&kernel));
    }
}
