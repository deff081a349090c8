//! Runs of frames outside of the program's code. A stack shows each in one line.
//!
//! In: a thread, and which of its frames are marked. Out: [`Run`]s with words for them. Lays nothing out. A frame that shows
//! why code runs at all, which its caller did not call by name, is in no run, whoever owns it: a finaliser, a signal
//! handler, a hook.

use std::ops::Range;

use crate::report::{Frame, FrameKind, Thread};

/// Owners of a run that are named.
const NAMED: usize = 2;

/// Functions of CPython that run code on an occasion, without a call in the program: 3.8 to 3.14, by their prefixes, as the
/// compiler adds endings.
const OCCASIONS: &[&str] = &[
    "slot_tp_finalize",
    "PyObject_CallFinalizer",
    "PyObject_ClearWeakRefs",
    "gc_collect_main",
    "_PyGC_Collect",
    "_PyErr_CheckSignals",
    "PyErr_CheckSignals",
    "atexit_callfuncs",
    "_PyAtExit_Call",
    "run_at_forkers",
    "PyOS_BeforeFork",
    "PyOS_AfterFork",
];
/// Methods that Python calls at the end of an object, and the file of those with a name that others have, too:
/// `weakref.finalize` and `multiprocessing.util.Finalize`.
const AT_THE_END: &[(&str, &[&str])] = &[("__del__", &[]), ("__call__", &["/weakref.py", "/multiprocessing/util.py"])];

/// Frames of others in a row.
pub(super) struct Run {
    pub(super) frames: Range<usize>,
    owners: Vec<String>,
}

impl Run {
    /// `7 frames of CPython and the C library`.
    pub(super) fn told(&self) -> String {
        let named = self.owners.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>();
        let others = if self.owners.len() > NAMED { ", and others" } else { "" };
        format!(
            "{} frames of {}{others}",
            self.frames.len(),
            named.join(if others.is_empty() { " and " } else { ", " })
        )
    }
}

/// The runs of a stack: frames of others, none of them marked. A single one is shown as it is.
pub(super) fn runs(thread: &Thread, is_marked: impl Fn(usize) -> bool) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, frame) in thread.frames.iter().enumerate() {
        let is_shown = || is_marked(index) || is_on_occasion(frame) || is_called_back(&thread.frames, index);
        let Some(owner) = frame.belongs_to.as_ref().filter(|_| !is_shown()) else { continue };
        match runs.last_mut().filter(|run| run.frames.end == index) {
            Some(run) => {
                run.frames.end += 1;
                if !run.owners.contains(owner) {
                    run.owners.push(owner.clone());
                }
            }
            None => runs.push(Run { frames: index..index + 1, owners: vec![owner.clone()] }),
        }
    }
    runs.retain(|run| run.frames.len() > 1);
    runs
}

/// Whether a frame shows that code runs on an occasion, and on which.
fn is_on_occasion(frame: &Frame) -> bool {
    let Some(function) = frame.function.as_deref() else { return false };
    match frame.kind {
        FrameKind::Native => OCCASIONS.iter().any(|name| function.starts_with(name)),
        _ => {
            let method = function.rsplit('.').next().unwrap_or(function);
            let file = frame.file.as_deref().unwrap_or_default();
            let is_in = |files: &[&str]| {
                files.is_empty() || frame.belongs_to.is_some() && files.iter().any(|end| file.ends_with(end))
            };
            AT_THE_END.iter().any(|(name, files)| method == *name && is_in(files))
        }
    }
}

/// Whether a frame of Python is what an occasion or a native library has called: the next native frames are not the
/// interpreter's alone.
fn is_called_back(frames: &[Frame], index: usize) -> bool {
    let Some((frame, outer)) = frames.get(index..).and_then(|rest| rest.split_first()) else { return false };
    let interpreter = |owner: &str| owner == "CPython";
    if frame.kind != FrameKind::Python {
        return false;
    }
    let mut native = outer.iter().take_while(|one| one.kind != FrameKind::Python).peekable();
    // The C library calls the outermost function of a thread or program: that is no callback.
    let ends_in_python = outer.iter().any(|one| one.kind == FrameKind::Python);
    ends_in_python
        && native.peek().is_some()
        && native.any(|one| {
            one.kind == FrameKind::Native
                && (is_on_occasion(one) || !one.belongs_to.as_deref().is_some_and(interpreter))
        })
}
