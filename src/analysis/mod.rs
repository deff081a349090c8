//! The pipeline from a capture to a report: which stage runs when, and how often to sample.
//!
//! In: processes, cores, or a snapshot. Out: a [`Report`], and on request the data for a snapshot. This module decodes
//! nothing itself. It alone has the order of the stages ([`sample`]), the rule for a second sample ([`session`]) and what
//! is read once for the report ([`settled`]).
//!
//! A first sample copies registers and stacks under the stop and reads the rest from the running target. If it shows
//! nothing wrong, that is the answer: in a process that hangs, nothing moves between the stop and the read. If it shows
//! a cycle, a lost owner or a wait without end, lockscope samples the target again. This time it copies all pages that
//! the analysis needed under the stop. Each suspicion is confirmed or refuted by its own members
//! ([`mod@confirmation`]), never by the activity of other threads.

mod awaited;
mod code;
mod confirmation;
mod incomplete;
mod lacking;
mod named_late;
mod pyspy;
mod rest;
mod sample;
mod session;
mod settled;
mod sources;
mod spins;
mod subject;
mod torn;
mod working;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::gpu::GpuCore;
use crate::image::core::elf::Bytes;
use crate::image::core::{CoreError, CoreFile, Places};
use crate::image::live::{AttachError, Stopping};
use crate::image::{Gap, Image, budget};
use crate::limits;
use crate::report::Report;
use crate::snapshot;
pub(crate) use code::CodeMapping;
use sample::Sample;
use session::examine;
use subject::{Cores, Live, Recorded};

/// The processes to attach to and the way to do it. Made by [`AttachOptions::of`]; then each field can be set.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AttachOptions {
    /// Process ids.
    pub pids: Vec<i32>,
    /// Take all descendants too.
    pub tree: bool,
    /// The processes were found, not named by the user. One that lockscope cannot attach to, for example because a
    /// debugger traces it, is left out with a gap.
    pub found: bool,
    /// Take the descendants that one of them waits for, where not all are taken.
    pub follow: bool,
    /// Where nothing is wrong in these: take the descendants that sleep, in the same session, as a server's workers do.
    pub offspring: bool,
    /// Longest time that the target may be stopped; by the number of its threads where none is given.
    pub max_pause: Option<Duration>,
    /// Which threads may be stopped.
    pub stopping: Stopping,
    /// Read local variables of Python frames.
    pub locals: bool,
    /// Put how each thread was read into the report.
    pub working: bool,
    /// Cores of the GPUs that the processes use, written by NVIDIA's driver.
    pub gpu_cores: Vec<PathBuf>,
    /// Query NCCL's RAS if a process waits for its GPU. One answer covers all ranks of a job, and every rank has to
    /// contribute to it.
    pub nccl_ras: bool,
}

impl AttachOptions {
    /// These processes, without their descendants; with nothing beyond what a report needs.
    pub fn of(pids: impl IntoIterator<Item = i32>) -> AttachOptions {
        AttachOptions {
            pids: pids.into_iter().collect(),
            tree: false,
            found: false,
            follow: false,
            offspring: false,
            max_pause: None,
            stopping: Stopping::AsNeeded,
            locals: false,
            working: false,
            gpu_cores: Vec::new(),
            nccl_ras: true,
        }
    }
}

/// The files to read and the places of the files that they mapped. Made by [`CoreOptions::of`]; then each field can be
/// set.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CoreOptions {
    /// Cores, each of one process, or a snapshot; and cores of the GPUs that the processes use.
    pub files: Vec<PathBuf>,
    /// The files that the processes had mapped.
    pub places: Places,
    /// Put how each thread was read into the report.
    pub working: bool,
}

impl CoreOptions {
    /// These cores, or this snapshot, with the files where the processes had them.
    pub fn of(files: impl IntoIterator<Item = impl Into<PathBuf>>) -> CoreOptions {
        CoreOptions { files: files.into_iter().map(Into::into).collect(), places: Places::default(), working: false }
    }
}

/// Whether to keep the data of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// The report only.
    Nothing,
    /// A snapshot beside it.
    Snapshot {
        /// Without local variables, environment and arguments.
        redact: bool,
    },
}

/// The result of `attach` or `post_mortem`.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The report.
    pub report: Report,
    /// The bytes of a snapshot, if one was requested.
    pub snapshot: Option<Vec<u8>>,
    /// Sensitive data that a redacted snapshot still holds.
    pub remains: Option<Gap>,
    /// The code of each process, in the order of the report's.
    pub code: Vec<Vec<CodeMapping>>,
}

impl Outcome {
    /// A report that no look has made.
    pub(crate) fn of(report: Report) -> Outcome {
        Outcome { report, snapshot: None, remains: None, code: Vec::new() }
    }
}

/// Why no report could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// lockscope could not attach to the target.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// lockscope could not read a file.
    #[error(transparent)]
    Core(#[from] CoreError),
    /// A subject that was used up; only a bug in lockscope leads here.
    #[error("there is nothing more to look at")]
    NoMoreLooks,
    /// A snapshot is to be made of a snapshot.
    #[error("`{path}` is a snapshot already; copy it")]
    SnapshotAlready {
        /// The file.
        path: String,
    },
}

/// The data that a report was made of: memory, and the processes that copied it. Freeing the data of ten thousand
/// threads takes a tenth of a second, so the caller shows the report first.
#[derive(Debug)]
pub(crate) struct MadeOf {
    _subject: Live,
    _last_look: Option<(Image, Sample)>,
}

/// Attach to live processes, sample as often as needed, report.
pub(crate) fn attach(options: &AttachOptions, keep: Keep) -> Result<Outcome, Error> {
    Ok(attach_and_hold(options, keep)?.0)
}

/// The same with what the report was made of.
pub(crate) fn attach_and_hold(options: &AttachOptions, keep: Keep) -> Result<(Outcome, MadeOf), Error> {
    budget::begin();
    limits::begin();
    let gpus = options.gpu_cores.iter().map(|path| gpu_core(path)).collect::<Result<Vec<_>, _>>()?;
    let mut subject = Live::open(options)?;
    let (outcome, last_look) = examine(&mut subject, &gpus, keep, options.working)?;
    Ok((outcome, MadeOf { _subject: subject, _last_look: last_look }))
}

/// Read a core of GPUs.
fn gpu_core(path: &Path) -> Result<GpuCore, CoreError> {
    let name = path.display().to_string();
    let bytes = Bytes::open(path)?;
    if !GpuCore::is_one(&bytes) {
        return Err(CoreError::NotCore { path: name, what: "no core of a GPU" });
    }
    GpuCore::read(&bytes, &name)
}

/// Read core files or a snapshot, report.
pub(crate) fn post_mortem(options: &CoreOptions, keep: Keep) -> Result<Outcome, Error> {
    budget::begin();
    limits::begin();
    let (mut paths, mut cores, mut gpus) = (Vec::new(), Vec::new(), Vec::new());
    for path in &options.files {
        let (name, bytes) = (path.display().to_string(), Bytes::open(path)?);
        if GpuCore::is_one(&bytes) {
            gpus.push(GpuCore::read(&bytes, &name)?);
        } else {
            cores.push(CoreFile::parse(bytes, &name)?);
            paths.push(path.clone());
        }
    }
    if cores.is_empty() && !gpus.is_empty() {
        return Ok(examine(&mut Cores::of_gpus(&options.files, &gpus), &gpus, keep, options.working)?.0);
    }
    opened(&paths, cores, &gpus, &options.places, keep, options.working)
}

/// The same with files that are open; `paths` names them.
pub(crate) fn opened(
    paths: &[PathBuf],
    cores: Vec<CoreFile>,
    gpus: &[GpuCore],
    places: &Places,
    keep: Keep,
    working: bool,
) -> Result<Outcome, Error> {
    let snapshot = cores.iter().position(snapshot::is_snapshot);
    let Some(position) = snapshot else {
        return Ok(examine(&mut Cores::open(paths, cores, places)?, gpus, keep, working)?.0);
    };
    let path = &paths[position];
    let name = path.display().to_string();
    if cores.len() > 1 {
        return Err(CoreError::NotAlone { path: name }.into());
    }
    if keep != Keep::Nothing {
        return Err(Error::SnapshotAlready { path: name });
    }
    Ok(examine(&mut Recorded::open(path, &cores[position], places)?, gpus, keep, working)?.0)
}
