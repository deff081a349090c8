//! Interpreters, thread states and frames, by the project's own walk.
//!
//! In: a runtime and its layout. Out: GILs and thread states with their frames. Every list is bounded and cyclic
//! lists end; a thread whose frames cannot be read keeps what was read, with a note.

use std::collections::HashSet;

use super::kernel_threads::KernelThreads;
use super::layout::{Anchors, Layout, LineTable, OWNER_SHIM, gil, stop};
use super::names::Codes;
use super::{EvalEntry, Gil, PythonFrame, PythonThread, StopTheWorld};
use crate::image::{Addr, Fault, Memory, MemoryExt, ProcessImage, saturated};
use crate::limits;
use crate::limits::python::{COST_OF_A_FRAME, MOST_FRAMES, MOST_INTERPRETERS, MOST_THREADS};
use crate::origin::PythonFolders;

/// One interpreter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interpreter {
    pub(crate) address: Addr,
    pub(crate) id: i64,
}

/// All interpreters, newest first, as the list has them.
pub(crate) fn interpreters(memory: &dyn Memory, runtime: Addr, layout: &Layout) -> Vec<Interpreter> {
    let mut list = Vec::new();
    let mut seen = HashSet::new();
    let mut next = memory.pointer(runtime + layout.interpreters_head);
    while let Ok(address) = next {
        if address.is_null() || !seen.insert(address) {
            break;
        }
        if list.len() >= MOST_INTERPRETERS {
            limits::met(MOST_INTERPRETERS, "interpreters of Python", "interpreters");
            break;
        }
        let id = memory.u64(address + layout.interpreter_id).unwrap_or(0).cast_signed();
        list.push(Interpreter { address, id });
        next = memory.pointer(address + layout.interpreter_next);
    }
    list
}

/// The GILs, each once: interpreters may share one, so the pointer is followed and the result compared.
pub(crate) fn gils(image: &ProcessImage, runtime: Addr, layout: &Layout, interpreters: &[Interpreter]) -> Vec<Gil> {
    let memory = &*image.memory;
    let mut list: Vec<Gil> = Vec::new();
    for interpreter in interpreters {
        let address = match (layout.runtime_gil, layout.interpreter_gil) {
            (Some(offset), _) => runtime + offset,
            (None, Some(offset)) => match memory.pointer(interpreter.address + offset) {
                Ok(address) if !address.is_null() => address,
                _ => continue,
            },
            (None, None) => continue,
        };
        // If the build has no GIL, a word says whether this process runs with one anyway.
        let shift = match layout.free_threaded {
            None => 0,
            Some(_) if memory.u32(address + gil::ENABLED) == Ok(1) => gil::AFTER_ENABLED,
            Some(_) => continue,
        };
        let address = address + shift;
        if let Some(known) = list.iter_mut().find(|g| g.address == address) {
            known.interpreters.push(interpreter.id);
        } else if let Ok(mut gil) = read_gil(image, address) {
            gil.interpreters.push(interpreter.id);
            list.push(gil);
        }
    }
    list
}

fn read_gil(image: &ProcessImage, address: Addr) -> Result<Gil, Fault> {
    let memory = &*image.memory;
    Ok(Gil {
        address,
        interpreters: Vec::new(),
        locked: memory.i32(address + gil::LOCKED)?,
        last_holder: memory.pointer(address + gil::LAST_HOLDER)?,
        switch_number: memory.u64(address + gil::SWITCH_NUMBER)?,
        cond: address + gil::COND,
        mutex: address + gil::MUTEX,
        switch_cond: address + gil::MUTEX + image.architecture.glibc_mutex_size(),
    })
}

/// Requested pauses of all threads: by the runtime and by each interpreter.
pub(crate) fn stops(
    image: &ProcessImage,
    runtime: Addr,
    layout: &Layout,
    interpreters: &[Interpreter],
) -> Vec<StopTheWorld> {
    let memory = &*image.memory;
    let Some(offsets) = layout.free_threaded else { return Vec::new() };
    let longer = image.architecture.glibc_mutex_size() - stop::MUTEX;
    let in_interpreter = offsets.interpreter_stop + stop::MUTEXES_BEFORE * longer;
    let own = interpreters.iter().map(|one| (Some(one.id), one.address + in_interpreter));
    let is_global = |address: &Addr| memory.u8(*address + stop::IS_GLOBAL) == Ok(1);
    let global = offsets.runtime_stop.iter().map(|offset| runtime + *offset).find(is_global);
    let all = global.map(|address| (None, address)).into_iter().chain(own);
    let read = |(interpreter, address): (Option<i64>, Addr)| {
        let countdown = memory.u64(address + stop::COUNTDOWN).ok()?.cast_signed();
        let requester = memory.pointer(address + stop::REQUESTER).ok()?;
        let is_asked = memory.u8(address + stop::REQUESTED) == Ok(1) && !requester.is_null();
        (is_asked && usize::try_from(countdown).is_ok_and(|count| count < MOST_THREADS)).then_some(StopTheWorld {
            interpreter,
            event: address + stop::EVENT,
            requester,
            countdown,
            is_stopped: memory.u8(address + stop::STOPPED) == Ok(1),
        })
    };
    all.filter_map(read).collect()
}

/// The thread states of one interpreter with their frames.
pub(crate) fn threads(
    known: &KernelThreads<'_>,
    layout: &Layout,
    interpreter: Interpreter,
    codes: &mut Codes<'_>,
    left: &mut usize,
) -> Vec<PythonThread> {
    let memory = known.memory();
    let mut list = Vec::new();
    let mut seen = HashSet::new();
    let mut next = memory.pointer(interpreter.address + layout.interpreter_threads);
    while let Ok(tstate) = next {
        if tstate.is_null() || !seen.insert(tstate) {
            break;
        }
        if list.len() >= MOST_THREADS {
            limits::met(MOST_THREADS, "thread states of an interpreter of Python", "thread states");
            break;
        }
        let ident = memory.u64(tstate + layout.thread_ident).unwrap_or(0);
        let native = layout.thread_native_id.and_then(|offset| memory.u64(tstate + offset).ok());
        let (entries, gap) = frames(memory, layout, tstate, codes, left);
        list.push(PythonThread {
            tstate,
            interpreter: interpreter.id,
            ident,
            tid: known.on_stack(&entries).or_else(|| known.of(ident, native)),
            name: None,
            entries,
            gap,
        });
        next = memory.pointer(tstate + layout.thread_next);
    }
    list
}

/// One frame as the list has it.
struct Raw {
    address: Addr,
    code: Addr,
    instruction: u64,
    shim: bool,
    entry: bool,
}

fn frames(
    memory: &dyn Memory,
    layout: &Layout,
    tstate: Addr,
    codes: &mut Codes<'_>,
    left: &mut usize,
) -> (Vec<EvalEntry>, Option<String>) {
    let (list, mut gap) = raw_frames(memory, layout, tstate, *left / COST_OF_A_FRAME);
    let anchors = match layout.anchors {
        Anchors::CFramePerFrame | Anchors::CFramePerEntry => cframes(memory, layout, tstate, *left / COST_OF_A_FRAME),
        _ => Vec::new(),
    };
    *left = left.saturating_sub((list.len() + anchors.len()) * COST_OF_A_FRAME);
    let mut anchors = anchors.into_iter();
    let mut entries = Vec::new();
    let mut run: Vec<PythonFrame> = Vec::new();
    for raw in list {
        let ends = match layout.anchors {
            Anchors::None | Anchors::CFramePerFrame => true,
            Anchors::CFramePerEntry => raw.entry,
            Anchors::Shims => raw.shim,
        };
        if raw.shim {
            // The outermost shim of 3.15 lies inside the thread state and stands for no C function.
            let root = raw.address.within(tstate, layout.thread_size);
            if !root || !run.is_empty() {
                entries.push(EvalEntry { anchor: (!root).then_some(raw.address), frames: std::mem::take(&mut run) });
            }
            continue;
        }
        let frame = python_frame(memory, layout, &raw, codes);
        let size = frame.function.len() + frame.file.len();
        let Some(rest) = left.checked_sub(size) else {
            gap = Some("frames of all threads take more memory than a real process's could".into());
            break;
        };
        *left = rest;
        run.push(frame);
        if ends {
            entries.push(EvalEntry { anchor: anchors.next(), frames: std::mem::take(&mut run) });
        }
    }
    if !run.is_empty() {
        entries.push(EvalEntry { anchor: anchors.next(), frames: run });
    }
    (entries, gap)
}

/// One frame that is on no thread's list: a suspended generator's.
pub(crate) fn suspended_frame(
    memory: &dyn Memory,
    layout: &Layout,
    folders: &PythonFolders,
    frame: Addr,
    code: Addr,
) -> Option<PythonFrame> {
    let instruction = memory.u64(frame + layout.frame_instruction).ok()?;
    let raw = Raw { address: frame, code, instruction, shim: false, entry: false };
    Some(python_frame(memory, layout, &raw, &mut Codes::new(memory, layout, folders)))
}

/// Frames that are on no thread's list, from this one outwards, without shims.
pub(crate) fn frames_from(
    memory: &dyn Memory,
    layout: &Layout,
    folders: &PythonFolders,
    first: Addr,
) -> Vec<PythonFrame> {
    let (raw, _) = raw_frames_from(memory, layout, first, MOST_FRAMES);
    let mut codes = Codes::new(memory, layout, folders);
    raw.iter().filter(|raw| !raw.shim).map(|raw| python_frame(memory, layout, raw, &mut codes)).collect()
}

fn python_frame(memory: &dyn Memory, layout: &Layout, raw: &Raw, codes: &mut Codes<'_>) -> PythonFrame {
    let code = codes.get(raw.code);
    let offset = instruction_offset(memory, layout, raw.address, raw.code, raw.instruction);
    let (function, file, line) = match &code {
        Some(code) => (code.function.clone(), code.file.clone(), codes.line(raw.code, offset)),
        None => ("<unreadable code object>".into(), "".into(), None),
    };
    let origin = code.as_ref().map(|code| code.origin.clone()).unwrap_or_default();
    PythonFrame { address: raw.address, code: raw.code, function, file, line, locals: Vec::new(), origin }
}

/// How many bytes of the code lie before the instruction that a frame is at, given the word that it keeps.
pub(crate) fn instruction_offset(memory: &dyn Memory, layout: &Layout, frame: Addr, code: Addr, word: u64) -> i64 {
    // Up to 3.10 it is an `int`.
    let [a, b, c, d, ..] = word.to_le_bytes();
    let number = i64::from(i32::from_le_bytes([a, b, c, d]));
    match layout.line_table {
        LineTable::Lnotab => number,
        LineTable::Pairs => number * 2,
        LineTable::Locations => {
            let own = layout.copies.and_then(|copies| {
                let index = memory.i32(frame + copies.frame_index).ok().filter(|index| (1..1 << 20).contains(index))?;
                // `_PyCodeArray`: a size, then the copies; the first is the code's own.
                let array = memory.pointer(code + copies.code_copies).ok()?;
                memory.pointer(array + 8 + u64::from(index.unsigned_abs()) * 8).ok().filter(|copy| !copy.is_null())
            });
            word.wrapping_sub(own.unwrap_or(code + layout.code_instructions).0).cast_signed()
        }
    }
}

/// Frames from the innermost on, shims included.
fn raw_frames(memory: &dyn Memory, layout: &Layout, tstate: Addr, most: usize) -> (Vec<Raw>, Option<String>) {
    let first = match (layout.thread_cframe, layout.cframe_frame) {
        (Some(cframe), Some(frame)) => memory.pointer(tstate + cframe).and_then(|c| memory.pointer(c + frame)),
        _ => memory.pointer(tstate + layout.thread_frame),
    };
    match first {
        Ok(first) => raw_frames_from(memory, layout, first, most),
        Err(fault) => (Vec::new(), Some(format!("its frames could not be reached: {fault}"))),
    }
}

/// The same from this frame on.
fn raw_frames_from(memory: &dyn Memory, layout: &Layout, first: Addr, most: usize) -> (Vec<Raw>, Option<String>) {
    /// Bytes of a frame that are read at once: all offsets of interest lie below.
    const HEAD: usize = 128;
    let mut list = Vec::new();
    let mut seen = HashSet::new();
    let most = most.min(MOST_FRAMES);
    let mut next = first;
    while !next.is_null() {
        if !seen.insert(next) {
            return (list, Some(format!("its list of frames runs in a circle at {next}")));
        }
        if list.len() >= most {
            return (list, Some(format!("it has more than {most} frames")));
        }
        let mut head = [0u8; HEAD];
        // The last frame of a chunk of memory may end before HEAD bytes: read what there is.
        let mut length = 0;
        while length < HEAD {
            let Some(rest) = head.get_mut(length..) else { break };
            match memory.read(next + length as u64, rest) {
                Ok(n) if n > 0 => length += n,
                Err(fault) if length < 96 => return (list, Some(format!("a frame could not be read: {fault}"))),
                _ => break,
            }
        }
        let word = |offset: u64| {
            let start = saturated(offset);
            head.get(start..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let byte = |offset: Option<u64>| offset.and_then(|o| head.get(saturated(o))).copied();
        list.push(Raw {
            address: next,
            // From 3.14 the lowest bits of a reference are a tag.
            code: Addr(word(layout.frame_code) & !3),
            instruction: word(layout.frame_instruction),
            shim: layout.anchors == Anchors::Shims && byte(layout.frame_owner) == Some(OWNER_SHIM),
            entry: byte(layout.frame_is_entry) == Some(1),
        });
        next = Addr(word(layout.frame_previous));
    }
    (list, None)
}

/// The `CFrame`s of a thread that lie on its C stack, innermost first. The last one lies inside the thread state, and
/// what it points to is not initialised (3.10).
fn cframes(memory: &dyn Memory, layout: &Layout, tstate: Addr, most: usize) -> Vec<Addr> {
    let mut list = Vec::new();
    let Some(offset) = layout.thread_cframe else { return list };
    let mut next = memory.pointer(tstate + offset);
    while let Ok(address) = next {
        if address.is_null() || address.within(tstate, layout.thread_size) || list.len() >= most.min(MOST_FRAMES) {
            break;
        }
        list.push(address);
        next = memory.pointer(address + layout.cframe_previous);
    }
    list
}
