//! A core file as an [`Image`](super::Image): cores of the kernel, of gdb's gcore, and what other tools write like them.
//!
//! In: paths and [`Places`]. Out: one process a core, threads with registers, memory layered over the mapped files, and
//! gaps for what a core does not hold. A core keeps no names of threads, no states and no descriptors; what is not in
//! it is left out and not guessed. Snapshots, which are cores too, have a module of their own.

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

pub(crate) mod elf;
pub(crate) mod error;
pub(crate) mod files;
mod maps;
mod memory;
pub(crate) mod notes;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

pub(crate) use elf::CoreFile;
pub(crate) use error::CoreError;
pub(crate) use files::Places;
pub(crate) use files::{SnapshotFiles, build_id};

use super::{Addr, Gap, Launch, Mapping, Memory, ProcessImage, TaskState, ThreadImage, environment, saturated};
use crate::limits;
use crate::limits::image::LARGEST_ENVIRONMENT;
use files::CoreFiles;
use memory::CoreMemory;

/// The owner of the kernel's notes.
const CORE: &[u8] = b"CORE";

/// The process that left this core, and what is missing of it.
pub(crate) fn process(core: CoreFile, path: &Path, places: &Places) -> Result<(ProcessImage, Vec<Gap>), CoreError> {
    let core = Arc::new(core);
    let note = |kind| core.notes_of(CORE, kind).next().map(|note| note.data.as_slice());
    let mut threads = threads(&core);
    let Some(first) = threads.first() else {
        return Err(CoreError::NoThreads { path: path.display().to_string() });
    };
    let process = note(notes::NT_PRPSINFO).and_then(notes::process).unwrap_or_default();
    let auxiliary = |key| notes::auxiliary(note(notes::NT_AUXV)?, key).map(super::Addr);
    let ranges = in_order(note(notes::NT_FILE).map(notes::files).unwrap_or_default());
    let headers = auxiliary(notes::AT_PHDR);
    let program = headers.and_then(|at| ranges.iter().find(|range| range.start <= at && at < range.end));
    let program = program.or(ranges.first()).map(|range| range.path.clone());
    let files = Arc::new(CoreFiles::new(places.clone(), Arc::clone(&core), ranges.clone(), program.clone()));
    let pid = if process.pid > 0 { process.pid } else { first.tid };
    let main = threads.iter().find(|thread| thread.tid == pid).unwrap_or(first);
    let known = maps::Known { vdso: auxiliary(notes::AT_SYSINFO_EHDR), stack: main.registers.general.sp() };
    let mappings = maps::mappings(&core, &ranges, &files, &known);
    let has_changes = mappings.iter().any(|m| m.write && !m.is_file() && is_stored(&core, m));

    let what = path.display();
    let mut gaps: Vec<Gap> = core.problems.iter().map(|why| Gap::new(format!("parts of `{what}`"), why)).collect();
    gaps.extend(blank_stacks(&core, &threads));
    if threads.len() > 1 {
        gaps.push(Gap::new(
            format!("names, states and descriptors of the threads of process {pid}"),
            "a core keeps none; names come from Python, from the code that sets them, or are the function that a thread \
             runs, written with (). A `lockscope snapshot` has them all",
        ));
    }
    gaps.extend(missing_memory(&core, &mappings, has_changes));
    // Shared memory with code in it is what libraries make at run time, but for a program that was run from there.
    let is_made =
        |path: &str| files.header_in_core(path).is_none_or(|header| !header.starts_with(&object::elf::ELFMAG));
    let has_code = |mapping: &&Mapping| mapping.execute && mapping.is_file();
    let code =
        mappings.iter().filter(has_code).filter(|m| !m.shared || !is_made(m.path.as_deref().unwrap_or_default()));
    let mut code: Vec<&str> = code.filter_map(|m| m.path.as_deref()).collect();
    code.sort_unstable();
    code.dedup();
    gaps.extend(files.gaps(code.into_iter()));

    let file = program.as_deref().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    let own = Some(process.name.as_str()).filter(|name| !file.starts_with(name)).unwrap_or_default();
    let memory = CoreMemory::new(Arc::clone(&core), Arc::clone(&files), mappings.clone(), has_changes);
    let mut unsettled = BTreeSet::new();
    for thread in &mut threads {
        match thread.registers.settled(thread.tid, &memory) {
            Some(registers) => thread.registers = registers.with_call_made_again(&memory),
            None => drop(unsettled.insert(thread.tid)),
        }
    }
    gaps.extend(without_code(&unsettled));
    let mut images: Vec<ThreadImage> =
        threads.iter().map(|thread| image(thread, pid, own, !unsettled.contains(&thread.tid))).collect();
    images.sort_by_key(|thread| thread.tid);
    images.dedup_by_key(|thread| thread.tid);
    let auxiliary = note(notes::NT_AUXV).map(<[u8]>::to_vec).unwrap_or_default();
    let environment = environment_on_stack(&memory, &auxiliary, &mappings);
    let image = ProcessImage {
        architecture: core.architecture,
        pid,
        ns_pid: pid,
        parent: Some(process.parent).filter(|parent| *parent > 0),
        parent_threads: Vec::new(),
        shares_memory_of: None,
        is_copy: None,
        exe: program.map(Into::into),
        cmdline: process.arguments,
        threads: images,
        mappings,
        memory: Arc::new(memory),
        files,
        tracer: None,
        descriptors: Vec::new(),
        environment,
        launch: Launch::default(),
        auxiliary,
    };
    Ok((image, gaps))
}

/// The variables of the environment that concern CUDA, from memory: the strings lie between the kernel's random bytes and the end of the first stack.
fn environment_on_stack(memory: &dyn Memory, auxiliary: &[u8], mappings: &[Mapping]) -> Vec<(String, String)> {
    let Some(random) = notes::auxiliary(auxiliary, notes::AT_RANDOM).map(Addr) else { return Vec::new() };
    let Some(stack) = Mapping::of(mappings, random) else { return Vec::new() };
    if stack.end - random > LARGEST_ENVIRONMENT {
        limits::met(LARGEST_ENVIRONMENT, "environment of the program", "bytes of it");
    }
    let mut strings = vec![0; saturated((stack.end - random).min(LARGEST_ENVIRONMENT))];
    let read = memory.read(random, &mut strings).unwrap_or(0);
    environment::relevant(strings.get(..read).unwrap_or_default())
}

/// The threads, each with what the notes behind its registers say of it.
fn threads(core: &CoreFile) -> Vec<notes::ThreadNote> {
    let mut list: Vec<notes::ThreadNote> = Vec::new();
    for note in &core.notes {
        if note.name == CORE && note.kind == notes::NT_PRSTATUS {
            list.extend(notes::thread(core.architecture, &note.data));
        } else if note.name == notes::LINUX
            && let Some(thread) = list.last_mut()
        {
            core.architecture.take_note(&mut thread.registers, note.kind, &note.data);
        }
    }
    list
}

/// Threads that may sleep: only their code could show it, and that is not at hand.
fn without_code(threads: &BTreeSet<i32>) -> Option<Gap> {
    let names: Vec<String> = threads.iter().map(i32::to_string).collect();
    (!threads.is_empty()).then(|| {
        Gap::new(
            format!("what threads {} wait for", names.join(", ")),
            "on this machine only the code at a thread's place says which system call it is in, and neither the core nor this \
             machine has that code: give the process's own files with `--sysroot`",
        )
    })
}

/// Files in order of address. In a damaged list, files that overlap an earlier one are left out.
fn in_order(mut ranges: Vec<notes::FileRange>) -> Vec<notes::FileRange> {
    ranges.sort_by_key(|range| range.start);
    let mut last = super::Addr(0);
    ranges.retain(|range| {
        let fits = range.start >= last;
        last = if fits { range.end } else { last };
        fits
    });
    ranges
}

/// A thread; the kernel keeps one name in a core, that of the main thread. gdb writes the program's name there, which
/// is none.
fn image(thread: &notes::ThreadNote, pid: i32, name: &str, is_settled: bool) -> ThreadImage {
    let state = match thread.registers.asleep() {
        Some(_) => TaskState::Sleeping,
        None if is_settled => TaskState::Running,
        None => TaskState::Other,
    };
    ThreadImage {
        name: if thread.tid == pid { name.to_owned() } else { String::new() },
        state,
        registers: Some(thread.registers),
        ..ThreadImage::new(thread.tid)
    }
}

/// Threads whose stack is there and empty. gdb 13 reads a mapping in pieces and gives up at the first that faults: on the
/// guard page that glibc 2.42 makes inside the mapping of a stack (MADV_GUARD_INSTALL), and writes zeros instead.
fn blank_stacks(core: &CoreFile, threads: &[notes::ThreadNote]) -> Option<Gap> {
    let is_blank = |thread: &&notes::ThreadNote| {
        let Some(sp) = thread.registers.general.sp() else { return false };
        let mut bytes = [0; 256];
        let read = core.read(sp, &mut bytes);
        read == bytes.len() && bytes.iter().all(|byte| *byte == 0)
    };
    let blank: Vec<String> = threads.iter().filter(is_blank).map(|thread| thread.tid.to_string()).collect();
    (!blank.is_empty()).then(|| {
        Gap::new(
            format!("stacks of threads {}", blank.join(", ")),
            "the core holds only zeros there: gdb's gcore gives up on a stack whose guard page it cannot read; let the \
             kernel write the core (`kill -ABRT PID`), or take a `lockscope snapshot PID`",
        )
    })
}

fn is_stored(core: &CoreFile, mapping: &Mapping) -> bool {
    core.load(mapping.start).is_some_and(|load| load.stored > 0)
}

/// Memory that only a core could hold, and that this one does not.
fn missing_memory(core: &CoreFile, mappings: &[Mapping], has_changes: bool) -> Option<Gap> {
    const NAMED: usize = 4;
    let lost = |mapping: &&Mapping| {
        let own = mapping.write && (!mapping.is_file() || mapping.shared || !has_changes);
        let stored = core.load(mapping.start).map_or(0, |load| load.stored);
        own && mapping.read && stored < mapping.end - mapping.start
    };
    let mut ranges: Vec<&Mapping> = mappings.iter().filter(lost).collect();
    if ranges.is_empty() {
        return None;
    }
    let size: u64 = ranges.iter().map(|mapping| mapping.end - mapping.start).sum();
    let count = ranges.len();
    ranges.sort_by_key(|mapping| std::cmp::Reverse(mapping.end - mapping.start));
    let named = ranges.iter().take(NAMED).map(|mapping| {
        let of = mapping.path.as_deref().map(|path| format!(" ({path})")).unwrap_or_default();
        format!("{}-{}{of}", mapping.start, mapping.end)
    });
    let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
    Some(Gap::new(
        format!("{} KiB of memory in {count} ranges: {}{more}", size / 1024, named.collect::<Vec<_>>().join(", ")),
        "the core does not hold it; next time `echo 0x3f > /proc/PID/coredump_filter` before the core is written, or \
         take a `lockscope snapshot PID` while the process lives",
    ))
}
