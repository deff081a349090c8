//! CPython inside the target: interpreters, thread states, frames and the GIL.
//!
//! In: memory, modules and symbols of a process. Out: [`Python`], owned and plain: addresses, anchors on the C
//! stack, names and lines. The project's own walk over the [`Memory`](crate::image::Memory) seam is
//! authoritative; py-spy (live processes only) adds what the walk could not name. It decodes no waits.

use crate::image::{Addr, Gap};

/// The CPython runtime of a process.
#[derive(Debug, Clone)]
pub struct Python {
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
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// `struct _gil_runtime_state`.
#[derive(Debug, Clone)]
pub struct Gil {
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
    /// Where a thread that was asked to drop the GIL waits until another took it: 48 bytes.
    pub switch_cond: Addr,
}

/// One `PyThreadState`.
#[derive(Debug, Clone)]
pub struct PythonThread {
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
#[derive(Debug, Clone)]
pub struct EvalEntry {
    /// An address inside the C stack frame of this activation (`_PyCFrame` or shim frame); `None` up to 3.9.
    pub anchor: Option<Addr>,
    /// Python frames that it runs, innermost first; may be empty while a frame is being pushed.
    pub frames: Vec<PythonFrame>,
}

/// One Python frame.
#[derive(Debug, Clone)]
pub struct PythonFrame {
    /// `PyFrameObject` or `_PyInterpreterFrame`.
    pub address: Addr,
    /// `PyCodeObject`.
    pub code: Addr,
    /// Qualified name (3.11+) or name.
    pub function: String,
    /// `co_filename`.
    pub file: String,
    /// Current line, if the line table could be read.
    pub line: Option<u32>,
    /// Local variables as (name, repr), on request only.
    pub locals: Vec<(String, String)>,
}
