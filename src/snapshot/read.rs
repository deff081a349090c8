//! Snapshots read back: the looks as images, with what was known of each.
//!
//! In: an opened core with lockscope's notes. Out: [`RecordedLook`]s. Everything in the file is foreign: sizes are
//! limited, ranges checked, lists put in order.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::memory::{Block, RecordedBlocks, RecordedMemory};
use super::model::{Header, Help, Run, Saved, SavedProcess};
use super::recorder::BLOCK;
use super::{NOTE_LOOKS, NOTE_PAGES, OWNER, VERSION};
use crate::image::core::{CoreError, CoreFile, Places, SnapshotFiles};
use crate::image::{Addr, Image, ProcessImage, budget, saturated};
use crate::limits::snapshot::LARGEST_NOTE;
use crate::modules::RecordedModule;
use crate::symbols::SymbolCache;
use crate::unwind::NativeStack;

/// One look of a snapshot.
#[derive(Debug)]
pub(crate) struct RecordedLook {
    pub(crate) image: Image,
    pub(crate) of_one_instant: bool,
    /// The known facts for each process.
    pub(crate) known: Vec<Known>,
}

/// The known facts about a process beside its image.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) stacks: Vec<NativeStack>,
    pub(crate) modules: Vec<RecordedModule>,
    pub(crate) answers: SymbolCache,
    pub(crate) help: Option<Help>,
}

/// Whether lockscope wrote this core.
pub(crate) fn is_snapshot(core: &CoreFile) -> bool {
    core.notes_of(OWNER, NOTE_LOOKS).next().is_some()
}

/// All looks, in order of time.
pub(crate) fn read(core: &CoreFile, path: &Path, places: &Places) -> Result<Vec<RecordedLook>, CoreError> {
    let name = || path.display().to_string();
    let damaged = |why: &str| CoreError::Damaged { path: name(), why: why.to_owned() };
    // All that is written down is needed: without some pages another verdict follows, and none of them says so.
    if let Some(cut) = core.cut {
        return Err(cut.of(name()));
    }
    let json = looks_of(core).ok_or_else(|| damaged("the note with its looks cannot be unpacked"))?;
    let cost = cost_of(&json);
    if !budget::take(cost, || format!("the looks of `{}`", path.display())) {
        return Err(damaged("its looks are larger than what a look may take in memory"));
    }
    let header: Header = serde_json::from_slice(&json).map_err(|_| damaged("the note with its looks is cut"))?;
    if header.version > VERSION {
        let (version, writer) = (header.version, header.lockscope);
        return Err(CoreError::NewerSnapshot { path: name(), version, writer, known: VERSION });
    }
    let saved: Saved =
        serde_json::from_slice(&json).map_err(|error| damaged(&format!("its looks cannot be read ({error})")))?;
    budget::give_back(json.len() as u64);
    drop(json);
    // Without it only pages of other processes and of the earlier look are lost.
    let blob = core.notes_of(OWNER, NOTE_PAGES).next().and_then(|note| unpacked(&note.data)).unwrap_or_default();
    let blob = Arc::new(blob);
    let looks: Vec<RecordedLook> = saved
        .looks
        .into_iter()
        .filter(|look| !look.processes.is_empty())
        .map(|look| {
            let (images, known) =
                look.processes.into_iter().map(|process| restore(process, core, &blob, places)).unzip();
            RecordedLook {
                image: Image {
                    processes: images,
                    gaps: look.gaps,
                    pause_us: 0,
                    rounds: 0,
                    kernel: look.kernel,
                    taken: look.taken,
                },
                of_one_instant: look.of_one_instant,
                known,
            }
        })
        .collect();
    if looks.is_empty() {
        return Err(damaged("it holds no look at a process"));
    }
    Ok(looks)
}

/// The JSON of a snapshot, as it stands there.
pub(crate) fn looks_of(core: &CoreFile) -> Option<Vec<u8>> {
    unpacked(&core.notes_of(OWNER, NOTE_LOOKS).next()?.data)
}

fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
    const PIECE: usize = 4 << 20;
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(bytes).ok()?;
    let mut out = Vec::new();
    loop {
        if out.len() as u64 > LARGEST_NOTE || !budget::take(PIECE as u64, || "what a snapshot unpacks to".into()) {
            return None;
        }
        out.reserve_exact(PIECE);
        if decoder.by_ref().take(PIECE as u64).read_to_end(&mut out).ok()? < PIECE {
            return Some(out);
        }
    }
}

/// The most memory that the values in a text of JSON take beside its own size: each has a comma behind it or ends a
/// list.
fn cost_of(json: &[u8]) -> u64 {
    const OF_A_VALUE: u64 = 24;
    json.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() as u64 * OF_A_VALUE
}

fn restore(saved: SavedProcess, core: &CoreFile, blob: &Arc<Vec<u8>>, places: &Places) -> (ProcessImage, Known) {
    let mut mappings = saved.mappings;
    mappings.retain(|mapping| mapping.start < mapping.end);
    mappings.sort_by_key(|mapping| mapping.start);
    // Each thread once, with its stack.
    let mut seen = BTreeSet::new();
    let stacks = saved.stacks.into_iter().chain(std::iter::repeat_with(NativeStack::unknown));
    let threads = saved.threads.into_iter().zip(stacks).filter(|(thread, _)| seen.insert(thread.tid));
    let (mut threads, mut stacks): (Vec<_>, Vec<NativeStack>) = threads.unzip();
    for registers in threads.iter_mut().filter_map(|thread: &mut crate::image::ThreadImage| thread.registers.as_mut()) {
        registers.general = registers.general.on(saved.architecture);
    }
    stacks.iter_mut().for_each(|stack| stack.of_machine(saved.architecture));
    let memory = RecordedMemory {
        blocks: blocks(&saved.pages, core, blob),
        blob: Arc::clone(blob),
        faults: saved.faults.into_iter().collect(),
        mappings: mappings.clone(),
    };
    let builds = saved.modules.iter().map(|module| (module.path.clone(), module.build_id.clone()));
    let files = SnapshotFiles::new(places.clone(), builds.collect(), saved.sources);
    let image = ProcessImage {
        architecture: saved.architecture,
        pid: saved.pid,
        ns_pid: saved.ns_pid,
        parent: saved.parent,
        parent_threads: saved.parent_threads,
        shares_memory_of: saved.shares_memory_of,
        is_copy: saved.is_copy,
        exe: saved.exe,
        cmdline: saved.cmdline,
        threads,
        mappings,
        memory: Arc::new(memory),
        files: Arc::new(files),
        tracer: saved.tracer,
        auxiliary: saved.auxiliary,
        descriptors: saved.descriptors,
        environment: saved.environment,
        launch: saved.launch,
    };
    let known = Known { stacks, modules: saved.modules, answers: saved.answers, help: saved.help };
    (image, known)
}

/// The blocks of runs, which were of whole pages in the first version.
fn blocks(runs: &[Run], core: &CoreFile, blob: &[u8]) -> RecordedBlocks {
    let mut blocks = RecordedBlocks::new();
    let mut left = LARGEST_NOTE;
    for run in runs {
        let length = run.length.min(left);
        left -= length;
        let mut done = 0;
        while done < length {
            let Some(start) = run.start.checked_add(done) else { break };
            let part = (BLOCK - start % BLOCK).min(length - done);
            let own = if run.at.is_none() { part } else { 0 };
            if !budget::take(own + size_of::<(u64, Block)>() as u64, || "memory of a snapshot".into()) {
                return blocks;
            }
            let block = match run.at {
                Some(at) => in_blob(blob, at.saturating_add(done), part),
                None => stored(core, Addr(start), part).map(Block::Own),
            };
            match block {
                Some(block) if start.is_multiple_of(BLOCK) => drop(blocks.insert(start, block)),
                _ => {}
            }
            done += part;
        }
    }
    blocks
}

fn in_blob(blob: &[u8], at: u64, length: u64) -> Option<Block> {
    let at = usize::try_from(at).ok()?;
    let end = at.checked_add(usize::try_from(length).ok()?)?;
    (end <= blob.len()).then_some(Block::InBlob(at..end))
}

fn stored(core: &CoreFile, address: Addr, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; saturated(length)];
    let mut done = 0;
    while done < bytes.len() {
        match core.read(address + done as u64, bytes.get_mut(done..)?) {
            0 => return None,
            read => done += read,
        }
    }
    Some(bytes)
}
