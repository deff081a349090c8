//! The frames of threads as the report has them: they hang on no judgement, so that those of many threads are written while it is found
//! out who waits.
//!
//! In: merged threads. Out: a [`ThreadFrames`] for each. It decides nothing of them but whose code they run.

use super::call_sites;
use crate::in_parts::make_each;
use crate::report::{self, CallSite};
use crate::threads::{Alike, Frame, Thread};
use crate::unwind::Trust;

/// One thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadFrames {
    /// The call to read of it.
    pub(super) at: CallSite,
    pub(super) frames: Vec<report::Frame>,
}

/// The threads of each process, by one thread of lockscope's.
pub(crate) fn beside_others(processes: &[Vec<Thread>]) -> Vec<Vec<ThreadFrames>> {
    let all = |threads: &Vec<Thread>| {
        let mut whose = Alike::default();
        threads.iter().map(|thread| frames_of(&mut whose, thread)).collect()
    };
    processes.iter().map(all).collect()
}

/// The threads of a process, as fast as can be.
pub(super) fn all(threads: &[Thread]) -> Vec<ThreadFrames> {
    make_each(threads, Alike::default, frames_of)
}

fn frames_of<'t>(whose: &mut Alike<'t, Whose>, thread: &'t Thread) -> ThreadFrames {
    let frames = whose.of(&thread.frames, Whose::of).iter().map(|(of, whose)| frame(of, whose)).collect();
    ThreadFrames { at: call_sites::anywhere(&thread.frames), frames }
}

/// Whose code a frame runs.
struct Whose {
    library: Option<report::Library>,
    belongs_to: Option<String>,
}

impl Whose {
    fn of(frame: &Frame) -> Whose {
        Whose { library: call_sites::library_of(frame), belongs_to: frame.origin.common_name().map(Into::into) }
    }
}

fn frame(frame: &Frame, whose: &Whose) -> report::Frame {
    report::Frame {
        kind: frame.kind,
        function: frame.function.as_deref().map(str::to_owned),
        module: frame.module.as_deref().map(str::to_owned),
        file: frame.file.as_deref().map(str::to_owned),
        line: frame.line,
        pc: frame.pc.map(|pc| pc.to_string()),
        trust: frame.trust.map(trust),
        library: whose.library,
        belongs_to: whose.belongs_to.clone(),
        module_offset: frame.module_offset.map(|offset| format!("{offset:#x}")),
        locals: frame.locals.clone(),
    }
}

/// How a native frame was found, in the words of the report.
pub(crate) fn trust(trust: Trust) -> report::Trust {
    match trust {
        Trust::Context | Trust::Cfi => report::Trust::Cfi,
        Trust::FramePointer => report::Trust::FramePointer,
        Trust::Leaf | Trust::Scan => report::Trust::Scan,
    }
}
