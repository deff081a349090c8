//! Calls of py-spy itself.
//!
//! In: the process id and the project's own walk. Out: the walk, with what py-spy adds. py-spy reads one
//! interpreter at a time and drops frames that it cannot name, so it is pointed to each interpreter, and its frames
//! are used only where they equal the own walk's. It panics on damaged memory: every call is wrapped. It reads memory by itself, and
//! a page may never come: it has a thread of its own, which is left behind then.

use std::sync::mpsc::channel;
use std::time::Duration;

use py_spy::config::LockingStrategy;
use py_spy::{Config, PythonSpy, StackTrace};

use crate::image::{Addr, ProcessImage};
use crate::limits::analysis::DEEPEST_FOR_PYSPY;
use crate::limits::without_panic;
use crate::origin::Origin;
use crate::python::{EvalEntry, KernelThreads, Python, PythonFrame, PythonThread};

/// Adds py-spy's findings to the threads of the own walk. An error says why py-spy gave none.
pub(super) fn add(pid: i32, python: &mut Python, locals: bool) -> Result<(), String> {
    let deepest = python.threads.iter().map(|t| t.entries.iter().map(|e| e.frames.len()).sum::<usize>()).max();
    let result = if deepest.unwrap_or(0) >= DEEPEST_FOR_PYSPY {
        Err(format!("a thread is deeper than the {DEEPEST_FOR_PYSPY} frames that it can follow"))
    } else {
        let mut copy = python.clone();
        let looked = in_time(move || {
            let result = look(pid, &mut copy, locals);
            Ok((copy, result))
        });
        // Parts that it added before it failed are useful, too.
        looked.and_then(|(with_more, result)| {
            *python = with_more;
            result
        })
    };
    result.map_err(could_not)
}

/// All threads as py-spy sees them. An error says why py-spy gave none.
pub(super) fn threads(image: &ProcessImage, python: &mut Python) -> Result<(), String> {
    let pid = image.pid;
    let asked = in_time(move || {
        let config = Config { blocking: LockingStrategy::NonBlocking, full_filenames: true, ..Config::default() };
        let mut spy = PythonSpy::new(pid, &config).map_err(|e| format!("{e:#}"))?;
        let traces = spy.get_stack_traces().map_err(|e| format!("{e:#}"))?;
        Ok((u8::try_from(spy.version.patch).unwrap_or(0), traces))
    });
    let (patch, traces) = asked.map_err(could_not)?;
    python.version.2 = patch;
    let known = KernelThreads::new(image);
    python.threads = traces.iter().map(|trace| thread_of_trace(&known, trace)).collect();
    python.decide_origins();
    Ok(())
}

/// py-spy has answered by then: 1,000 threads with their variables take a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// Ask in a thread of its own, which may be left behind.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    in_time_of(PATIENCE, work)
}

fn in_time_of<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (tell, told) = channel();
    let asking = move || {
        let _ = tell.send(without_panic(work).unwrap_or_else(|| Err("it panicked".into())));
    };
    std::thread::Builder::new().name("py-spy".to_owned()).spawn(asking).map_err(|error| error.to_string())?;
    let late = |_| Err(format!("it did not come to its end within {} s", patience.as_secs()));
    told.recv_timeout(patience).unwrap_or_else(late)
}

fn could_not(error: String) -> String {
    format!("py-spy could not read them: {error}")
}

/// One activation of the eval loop for each frame, as up to 3.9.
fn thread_of_trace(known: &KernelThreads<'_>, trace: &StackTrace) -> PythonThread {
    let entry = |frame: &py_spy::Frame| {
        let line = u32::try_from(frame.line).ok().filter(|line| *line > 0);
        let (function, file) = (frame.name.clone(), frame.filename.clone());
        let frame = PythonFrame {
            address: Addr(0),
            code: Addr(0),
            function: function.into(),
            file: file.into(),
            line,
            locals: Vec::new(),
            origin: Origin::default(),
        };
        EvalEntry { anchor: None, frames: vec![frame] }
    };
    PythonThread {
        tstate: Addr(0),
        interpreter: 0,
        ident: trace.thread_id,
        tid: known.of(trace.thread_id, None),
        name: trace.thread_name.clone(),
        entries: trace.frames.iter().map(entry).collect(),
        gap: None,
    }
}

fn look(pid: i32, python: &mut Python, locals: bool) -> Result<(), String> {
    let config = Config {
        // The process runs: nothing is to be locked, and it is ours not to disturb.
        blocking: LockingStrategy::NonBlocking,
        // Short names make py-spy probe folders for __init__.py, which hangs on a dead network file system.
        full_filenames: true,
        dump_locals: u64::from(locals),
        ..Config::default()
    };
    let mut spy = PythonSpy::new(pid, &config).map_err(|e| format!("{e:#}"))?;
    if spy.version.major == u64::from(python.version.0) && spy.version.minor == u64::from(python.version.1) {
        python.version.2 = u8::try_from(spy.version.patch).unwrap_or(python.version.2);
    }
    let mut failure = None;
    for interpreter in python.interpreters.clone() {
        spy.addresses.interpreter_address = interpreter.address.0 as usize;
        spy.addresses.imports_modules_address = interpreter.modules_field.0 as usize;
        if let Some(gil) = interpreter.gil {
            spy.addresses.threadstate_address = gil.0 as usize;
        }
        spy.python_thread_names.clear();
        match spy.get_stack_traces() {
            Ok(traces) => {
                for thread in python.threads.iter_mut().filter(|t| t.interpreter == interpreter.id) {
                    if let Some(trace) = traces.iter().find(|t| t.thread_id == thread.ident) {
                        adopt(thread, trace);
                    }
                }
            }
            Err(error) => failure = Some(format!("{error:#}")),
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Take over what py-spy says of a thread. The name holds for the thread's whole life; frames must be the same.
fn adopt(thread: &mut PythonThread, trace: &StackTrace) {
    if thread.name.is_none() {
        thread.name = trace.thread_name.clone();
    }
    let own: Vec<_> = thread.entries.iter_mut().flat_map(|e| e.frames.iter_mut()).collect();
    let same = own.len() == trace.frames.len()
        && own
            .iter()
            .zip(&trace.frames)
            .all(|(own, other)| *own.function == *other.name && *own.file == *other.filename);
    if !same {
        return;
    }
    for (own, other) in own.into_iter().zip(&trace.frames) {
        if own.line.is_none() {
            own.line = u32::try_from(other.line).ok().filter(|l| *l > 0);
        }
        own.locals = other
            .locals
            .iter()
            .flatten()
            .map(|local| (local.name.clone(), local.repr.clone().unwrap_or_default()))
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_answer_is_left_behind() {
        assert_eq!(in_time(|| Ok(5)), Ok(5));
        assert_eq!(in_time(|| -> Result<(), String> { panic!("not told") }), Err("it panicked".into()));
        let (end, wait) = channel::<()>();
        let asked = in_time_of(Duration::ZERO, move || wait.recv().map_err(|error| error.to_string()));
        assert_eq!(asked, Err("it did not come to its end within 0 s".into()));
        drop(end);
    }
}
