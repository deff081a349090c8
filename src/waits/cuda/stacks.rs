//! A thread's part in CUDA by its stack: the call that it is in, and whether the driver called it.
//!
//! In: a thread and which of its frames are CUDA's. Out: an [`Entry`], or the part of the stack that a host function
//! covers. It decides nothing about waits.

use super::libraries::Libraries;
use crate::limits::cuda::STARTS_THREADS;
use crate::origin::{is_c_library, is_cuda_call};
use crate::symbols::base_symbol;
use crate::waits::thread::{Process, ThreadView};

/// A call into CUDA that has not returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Position of its native frame.
    pub(super) native: usize,
    /// The exported function.
    pub(super) name: String,
}

/// A function of the program that the driver runs for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostFunction {
    /// Position of the innermost native frame of the driver that called it.
    pub(super) driver: usize,
}

/// A thread's part in CUDA.
#[derive(Debug, Default)]
pub(super) struct Stack {
    /// The call that it is in now.
    pub(super) entry: Option<Entry>,
    /// The driver made the thread, for its own work.
    pub(super) is_drivers_own: bool,
    /// The host function that the driver runs on it.
    pub(super) host_function: Option<HostFunction>,
}

/// Read the stack of `thread`.
pub(super) fn read(process: &Process<'_>, libraries: &Libraries, thread: &ThreadView<'_>) -> Stack {
    let Some(merged) = thread.thread else { return Stack::default() };
    let marks = libraries.marks(&process.context, merged);
    if !marks.contains(&true) {
        return Stack::default();
    }
    let modules = process.context.symbols.modules();
    let is_libc = |native: usize| {
        let module = merged.native.frames.get(native).and_then(|frame| modules.list.get(modules.at(frame.pc)?));
        module.is_some_and(|module| &*module.name == "[vdso]" || is_c_library(&module.name))
    };
    // Innermost: what CUDA called in the C library, then CUDA.
    let inner = (0..marks.len()).find(|native| !is_libc(*native)).filter(|native| marks[*native]);
    let entry = inner.and_then(|inner| {
        let end = (inner..marks.len()).find(|native| !marks[*native] && !is_libc(*native)).unwrap_or(marks.len());
        let last = (inner..end).rfind(|native| marks[*native])?;
        entry(thread, inner, last)
    });
    let outermost = (0..marks.len()).rev().take(STARTS_THREADS + 1).find(|native| !is_libc(*native));
    let is_drivers_own = outermost.is_some_and(|native| marks[native]);
    let host_function = outermost.filter(|_| is_drivers_own).and_then(|outermost| {
        let driver = (0..=outermost).rev().take_while(|native| marks[*native]).last()?;
        let called = (0..driver).any(|native| !is_libc(native));
        called.then_some(HostFunction { driver })
    });
    Stack { entry, is_drivers_own, host_function }
}

/// The outermost named function of the frames `inner..=last`, or of a runtime that was linked into the caller.
fn entry(thread: &ThreadView<'_>, inner: usize, last: usize) -> Option<Entry> {
    let named: Vec<(usize, &str)> = thread.names(last + 2).filter(|(native, _)| *native >= inner).collect();
    let linked_in = named.iter().rfind(|(native, name)| *native == last + 1 && is_cuda_call(name));
    let found = linked_in.or_else(|| named.iter().rfind(|(native, _)| *native <= last))?;
    Some(Entry { native: found.0, name: base_symbol(found.1).to_owned() })
}
