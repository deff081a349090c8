//! The memory that a snapshot keeps beyond the pages that this version reads: for a later version, or gdb.
//!
//! In: one process and what is known of it. Out: pages kept by its [`Recorder`]: the used part of each stack, thread
//! descriptors, what registers point at, Python's states, frames and the objects that they name, and the lists by
//! which a debugger finds the libraries. All of it has limits: a snapshot is small, also of a process that is not.

use super::recorder::Recorder;
use crate::image::core::notes;
use crate::image::{Addr, MemoryExt, ProcessImage};
use crate::limits::snapshot::{
    ALL_STACKS, FOLLOWED_FRAMES, FRAME_WORDS, LARGEST_INTERPRETER, LARGEST_RUNTIME, LARGEST_STACK,
    LARGEST_THREAD_STATE, LEAST_STACK, LONGEST_LIBRARY_NAME, MOST_DYNAMIC_ENTRIES, MOST_LIBRARIES, MOST_POINTED_AT,
    MOST_PROGRAM_HEADERS,
};
use crate::python::Python;
use crate::threads::Thread;

/// The red zone.
const BELOW_STACK_POINTER: u64 = 128;
/// Before and behind the thread pointer, at least: `struct pthread` and the static thread-local variables beside it.
const DESCRIPTOR: (u64, u64) = (0x200, 0x900);

/// Program headers and an entry of the dynamic section (elf.h).
const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const PROGRAM_HEADER: u64 = 56;
const DT_DEBUG: u64 = 21;

/// Keep the roots of `process`. The content of objects is left out when the snapshot is to be redacted.
pub(super) fn keep(
    recorder: &Recorder,
    process: &ProcessImage,
    threads: &[Thread],
    python: Option<&Python>,
    redact: bool,
) {
    stacks(recorder, process);
    libraries(recorder, process);
    let mut left = MOST_POINTED_AT;
    if let Some(python) = python {
        python_roots(recorder, process, python, redact, &mut left);
    }
    if !redact {
        for frame in threads.iter().flat_map(|thread| thread.native.frames.iter().take(FOLLOWED_FRAMES)) {
            for register in process.architecture.callee_saved() {
                follow(recorder, process, frame.registers.get(*register), &mut left);
            }
        }
    }
}

/// The same of a process that is as hostile as can be, for fuzzers.
pub(crate) fn keep_roots(process: &ProcessImage) {
    let recorder = Recorder::new(std::sync::Arc::clone(&process.memory));
    keep(&recorder, process, &[], None, false);
}

fn stacks(recorder: &Recorder, process: &ProcessImage) {
    let each = (ALL_STACKS / (process.threads.len() as u64).max(1)).clamp(LEAST_STACK, LARGEST_STACK);
    for thread in &process.threads {
        let Some(registers) = thread.registers else { continue };
        if let Some(sp) = registers.general.sp()
            && let Some(mapping) = process.mapping(sp)
        {
            let start = Addr(sp.0.saturating_sub(BELOW_STACK_POINTER)).max(mapping.start);
            recorder.keep(start, (mapping.end - start).min(each));
        }
        let pointer = registers.thread_pointer;
        let (before, behind) = process.architecture.around_thread_pointer();
        let (before, behind) = (before.max(DESCRIPTOR.0), behind.max(DESCRIPTOR.1));
        if process.mapping(pointer).is_some_and(|mapping| mapping.write) {
            recorder.keep(pointer - before, before + behind);
        }
    }
}

/// Keep the page behind a pointer into memory of the process's own.
fn follow(recorder: &Recorder, process: &ProcessImage, pointer: Option<u64>, left: &mut usize) {
    let Some(pointer) = pointer.map(Addr) else { return };
    let own = process.mapping(pointer).is_some_and(|mapping| mapping.write && mapping.read && !mapping.shared);
    if own && *left > 0 {
        *left -= recorder.keep(pointer, 8).min(*left);
    }
}

fn python_roots(recorder: &Recorder, process: &ProcessImage, python: &Python, redact: bool, left: &mut usize) {
    if !python.runtime.is_null() {
        recorder.keep(python.runtime, LARGEST_RUNTIME);
    }
    for interpreter in &python.interpreters {
        recorder.keep(interpreter.address, LARGEST_INTERPRETER);
    }
    for thread in &python.threads {
        recorder.keep(thread.tstate, LARGEST_THREAD_STATE);
    }
    let frames = python.threads.iter().flat_map(|thread| &thread.entries).flat_map(|entry| &entry.frames);
    for frame in frames.filter(|frame| !frame.address.is_null()) {
        if *left == 0 {
            break;
        }
        *left -= recorder.keep(frame.address, FRAME_WORDS * 8).min(*left);
        if redact {
            continue;
        }
        for word in 0..FRAME_WORDS {
            // From 3.14 the lowest bits of a reference are a tag.
            let pointer = process.memory.u64(frame.address + word * 8).ok().map(|word| word & !3);
            follow(recorder, process, pointer, left);
        }
    }
}

/// The data that a debugger reads to find the libraries: program headers, the dynamic section, the loader's list.
fn libraries(recorder: &Recorder, process: &ProcessImage) {
    let memory = &*process.memory;
    let auxiliary = |key| notes::auxiliary(&process.auxiliary, key);
    let Some(headers) = auxiliary(notes::AT_PHDR).map(Addr) else { return };
    let count = auxiliary(notes::AT_PHNUM).unwrap_or(0).min(MOST_PROGRAM_HEADERS);
    let header = |position: u64| {
        let at = headers + position * PROGRAM_HEADER;
        Some((memory.u32(at).ok()?, memory.u64(at + 16).ok()?))
    };
    let list: Vec<(u32, u64)> = (0..count).filter_map(header).collect();
    let place = |wanted: u32| list.iter().find(|(kind, _)| *kind == wanted).map(|(_, address)| *address);
    let bias = place(PT_PHDR).map_or(0, |own| headers.0.wrapping_sub(own));
    // The ELF header stands before them.
    recorder.keep(headers, count * PROGRAM_HEADER);
    let Some(dynamic) = place(PT_DYNAMIC).map(|address| Addr(address.wrapping_add(bias))) else { return };
    let entry = |position: u64| {
        let at = dynamic + position * 16;
        Some((memory.u64(at).ok()?, memory.pointer(at + 8).ok()?))
    };
    let entries = (0..MOST_DYNAMIC_ENTRIES).map_while(entry).take_while(|(tag, _)| *tag != 0);
    let Some((_, debug)) = entries.filter(|(tag, _)| *tag == DT_DEBUG).last() else { return };
    // struct r_debug: r_version, r_map; struct link_map: l_addr, l_name, l_ld, l_next (link.h).
    recorder.keep(debug, 40);
    let mut next = memory.pointer(debug + 8).unwrap_or_default();
    for _ in 0..MOST_LIBRARIES {
        if next.is_null() {
            break;
        }
        recorder.keep(next, 40);
        let _ = memory.pointer(next + 8).and_then(|name| memory.c_string(name, LONGEST_LIBRARY_NAME));
        next = memory.pointer(next + 24).unwrap_or_default();
    }
}
