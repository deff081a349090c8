//! CPython inside the target: interpreters, thread states, frames and the GIL.
//!
//! In: memory, modules and symbols of a process. Out: [`Python`], owned and plain: addresses, anchors on the C
//! stack, names and lines. The project's own walk over the [`Memory`](crate::image::Memory) seam is
//! authoritative. It decodes no waits and knows no merged stack.

// All of its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod ahead;
mod at_hand;
pub(crate) mod finalisers;
mod folders;
pub(crate) mod greenlets;
pub(crate) mod heap;
pub(crate) mod inspect;
mod instructions;
mod kernel_threads;
mod layout;
mod lines;
mod names;
pub(crate) mod objects;
pub(crate) mod reach;
pub(crate) mod retries;
mod runtime;
mod uses;
pub(crate) mod values;
mod walk;

pub(crate) use kernel_threads::KernelThreads;

use std::collections::HashMap;
use std::sync::Arc;

use crate::image::{Addr, Gap, MemoryExt, ProcessImage};
use crate::limits::python::MEMORY_OF_FRAMES;
use crate::origin::{Origin, PythonFolders};
use crate::symbols::Symbols;

impl Python {
    /// A runtime whose structures were not read.
    pub(crate) fn unreadable(version: (u8, u8, u8)) -> Python {
        Python {
            version,
            free_threaded: false,
            runtime: Addr(0),
            finalizing: None,
            gils: Vec::new(),
            threads: Vec::new(),
            gaps: Vec::new(),
            interpreters: Vec::new(),
            stops: Vec::new(),
            layout: None,
            folders: Arc::default(),
        }
    }

    /// Decide whose code each frame is, where frames came from elsewhere than the own walk.
    pub(crate) fn decide_origins(&mut self) {
        let entries = self.threads.iter_mut().flat_map(|thread| &mut thread.entries);
        entries.flat_map(|entry| &mut entry.frames).for_each(|frame| frame.origin = self.folders.of(&frame.file));
    }

    /// Whether some frame could not be named or has no line.
    pub(crate) fn is_incomplete(&self) -> bool {
        let mut frames = self.threads.iter().flat_map(|t| &t.entries).flat_map(|e| &e.frames);
        frames.any(|frame| frame.line.is_none() || frame.file.is_empty())
    }
}

/// The CPython runtime of a process.
#[derive(Debug, Clone)]
pub(crate) struct Python {
    /// Version, as (3, 12, 1).
    pub version: (u8, u8, u8),
    /// Built with `--disable-gil`.
    pub free_threaded: bool,
    /// Address of `_PyRuntime` (null for 3.6).
    pub runtime: Addr,
    /// Thread state that finalises the runtime, if one does.
    pub finalizing: Option<Addr>,
    /// The GILs, each once: interpreters may share one.
    pub gils: Vec<Gil>,
    /// Thread states of all interpreters.
    pub threads: Vec<PythonThread>,
    /// Data that could not be read.
    pub gaps: Vec<Gap>,
    /// Interpreters, as the runtime lists them. py-spy must be pointed to them one after the other.
    pub interpreters: Vec<Interpreter>,
    /// Requested pauses of all threads (builds without a GIL).
    pub stops: Vec<StopTheWorld>,
    /// How this build lays out its structures, if it is known.
    pub(crate) layout: Option<layout::Layout>,
    /// Where its library and the installed packages are.
    pub(crate) folders: Arc<PythonFolders>,
}

/// One interpreter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interpreter {
    /// `PyInterpreterState`.
    pub address: Addr,
    /// Its identifier; 0 is the main one.
    pub id: i64,
    /// Address of its field `imports.modules`: where py-spy finds the names of threads.
    pub modules_field: Addr,
    /// Where it keeps the pointer to its GIL (3.12 on).
    pub gil: Option<Addr>,
}

/// `struct _stoptheworld_state`: a thread that wants all others to pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StopTheWorld {
    /// The interpreter whose threads are to pause; none for those of all.
    pub interpreter: Option<i64>,
    /// The event that the requester waits for.
    pub event: Addr,
    /// Thread state of the requester.
    pub requester: Addr,
    /// Threads that have not paused yet.
    pub countdown: i64,
    /// All have.
    pub is_stopped: bool,
}

/// `struct _gil_runtime_state`.
#[derive(Debug, Clone)]
pub(crate) struct Gil {
    /// Its address.
    pub address: Addr,
    /// Identifiers of the interpreters that use it.
    pub interpreters: Vec<i64>,
    /// 1 held, 0 free, -1 not created.
    pub locked: i32,
    /// Thread state of the holder when `locked` is 1; else of the last one that held it.
    pub last_holder: Addr,
    /// Counts changes of hands.
    pub switch_number: u64,
    /// The condition variable that waiters sleep on: address of its 48 bytes.
    pub cond: Addr,
    /// The mutex of `cond`.
    pub mutex: Addr,
    /// The place where a thread waits after it dropped the GIL on request, until another thread took it: 48 bytes.
    pub switch_cond: Addr,
}

/// One `PyThreadState`.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct PythonThread {
    /// Its address.
    pub tstate: Addr,
    /// Identifier of its interpreter.
    pub interpreter: i64,
    /// `threading.get_ident()`: pthread_self.
    pub ident: u64,
    /// Kernel thread in lockscope's own PID namespace; `None` when the thread is gone.
    pub tid: Option<i32>,
    /// `threading.Thread.name`.
    pub name: Option<String>,
    /// Calls of the eval loop, innermost first, each with the Python frames that it runs.
    pub entries: Vec<EvalEntry>,
    /// Why the walk of this thread stopped early, if it did.
    pub gap: Option<String>,
}

/// One activation of the C eval loop.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct EvalEntry {
    /// An address inside the C stack frame of this activation (`_PyCFrame` or shim frame); `None` up to 3.9.
    pub anchor: Option<Addr>,
    /// Python frames that it runs, innermost first; may be empty while a frame is being pushed.
    pub frames: Vec<PythonFrame>,
}

/// One Python frame.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct PythonFrame {
    /// `PyFrameObject` or `_PyInterpreterFrame`.
    pub address: Addr,
    /// `PyCodeObject`.
    pub code: Addr,
    /// Qualified name (3.11+) or name.
    pub function: Arc<str>,
    /// `co_filename`.
    pub file: Arc<str>,
    /// Current line, if the line table could be read.
    pub line: Option<u32>,
    /// Local variables as (name, repr), on request only.
    pub locals: Vec<(String, String)>,
    /// Whose code it is: found again wherever frames are read from a file.
    #[serde(skip)]
    pub origin: Origin,
}

/// Find CPython in a process and walk it; `None` when there is none.
pub(crate) fn find(image: &ProcessImage, symbols: &Symbols<'_>) -> Option<Python> {
    let found = runtime::find(image, symbols)?;
    let mut python =
        Python { free_threaded: found.free_threaded, runtime: found.runtime, ..Python::unreadable(found.version) };
    let what = format!("Python frames and locks of process {}", image.pid);
    let layout = match found.layout {
        Err(why) => {
            python.gaps.push(Gap::new(what, why));
            return Some(python);
        }
        Ok(layout) => layout,
    };
    walk_all(image, &mut python, &layout);
    for thread in &python.threads {
        if let (Some(tid), Some(why)) = (thread.tid, &thread.gap) {
            python.gaps.push(Gap::new(format!("Python frames of thread {tid}"), why.clone()));
        }
    }
    Some(python)
}

/// Interpreters, GILs and threads by the layout.
fn walk_all(image: &ProcessImage, python: &mut Python, layout: &layout::Layout) {
    python.layout = Some(*layout);
    let memory = &*image.memory;
    let kernel_threads = KernelThreads::new(image);
    let interpreters = walk::interpreters(memory, python.runtime, layout);
    python.finalizing = memory.pointer(python.runtime + layout.finalizing).ok().filter(|a| !a.is_null());
    python.gils = walk::gils(image, python.runtime, layout, &interpreters);
    python.stops = walk::stops(image, python.runtime, layout, &interpreters);
    python.folders = Arc::new(folders::find(image, layout, &interpreters, python.version));
    let folders = Arc::clone(&python.folders);
    let mut codes = names::Codes::new(memory, layout, &folders);
    let mut left = MEMORY_OF_FRAMES;
    for interpreter in interpreters {
        python.threads.extend(walk::threads(&kernel_threads, layout, interpreter, &mut codes, &mut left));
        python.interpreters.push(Interpreter {
            address: interpreter.address,
            id: interpreter.id,
            modules_field: interpreter.address + layout.interpreter_modules,
            gil: layout.interpreter_gil.and_then(|offset| memory.pointer(interpreter.address + offset).ok()),
        });
    }
}

/// Walk whatever stands at `runtime` by the layout of one of the known versions: for the fuzzers.
pub(crate) fn walk_foreign(image: &ProcessImage, runtime: Addr, version: usize) -> Python {
    let Some(&(number, layout)) = layout::FIXED.iter().cycle().nth(version % layout::FIXED.len()) else {
        return Python::unreadable((0, 0, 0));
    };
    let mut python = Python::unreadable((number.0, number.1, 0));
    python.runtime = runtime;
    walk_all(image, &mut python, layout);
    name_threads(image, &mut python);
    let _ = layout::self_description(&*image.memory, runtime);
    python
}

/// Names of threads as `threading` knows them, and the third number of the version.
pub(crate) fn name_threads(image: &ProcessImage, python: &mut Python) {
    let Some(layout) = &python.layout else { return };
    let memory = &*image.memory;
    let objects = objects::Objects::new(memory, layout);
    // If two threads have one ident, the first counts.
    let threads = python.threads.iter().enumerate().rev();
    let positions: HashMap<(i64, u64), usize> =
        threads.map(|(position, thread)| ((thread.interpreter, thread.ident), position)).collect();
    for interpreter in &python.interpreters {
        let Ok(modules) = memory.pointer(interpreter.modules_field) else { continue };
        if interpreter.id == 0
            && let Some(hex) = objects.global(modules, "sys", "hexversion").and_then(|o| objects.unsigned(o))
            && hex >> 16 == u64::from(python.version.0) << 8 | u64::from(python.version.1)
        {
            python.version.2 = layout::version_of(hex).2;
        }
        let active = objects.global(modules, "threading", "_active").and_then(|dict| objects.items(dict));
        for (ident, thread) in active.unwrap_or_default() {
            let (Some(ident), Some(name)) = (objects.unsigned(ident), objects.attribute(thread, "_name")) else {
                continue;
            };
            let position = positions.get(&(interpreter.id, ident));
            if let Some(own) = position.and_then(|position| python.threads.get_mut(*position)) {
                own.name = objects.text(name);
            }
        }
    }
    // The name that `threading` will give the main thread once something imports it. From 3.13 on Python itself does
    // not import it.
    let first = python.threads.iter_mut().find(|thread| thread.interpreter == 0 && thread.tid == Some(image.pid));
    if let Some(first) = first.filter(|thread| thread.name.is_none() && !thread.entries.is_empty()) {
        first.name = Some("MainThread".to_owned());
    }
}
