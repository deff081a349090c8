//! A thread as reports show it, made from the one line that a digest has of it.
//!
//! In: its id, name, state and line. Out: a [`Thread`] with one frame. It knows no ranks and no clusters.

use crate::report::{CallSite, Frame, FrameKind, Thread};

/// A thread made from its line in a digest: "file.py:12 function", or a function alone.
pub(super) fn thread(tid: i32, name: &str, state: crate::report::ThreadState, place: &str) -> Thread {
    let (file, rest) = place.split_once(':').map_or((None, place), |(file, rest)| (Some(file), rest));
    let (line, function) = rest.split_once(' ').unwrap_or((rest, ""));
    let line = line.parse().ok().filter(|_| file.is_some());
    let frame = Frame {
        kind: if line.is_some() { FrameKind::Python } else { FrameKind::Native },
        function: Some(if line.is_some() { function } else { place }.to_owned()).filter(|name| !name.is_empty()),
        module: None,
        file: file.filter(|_| line.is_some()).map(str::to_owned),
        line,
        pc: None,
        trust: None,
        library: None,
        belongs_to: None,
        module_offset: None,
        locals: Vec::new(),
    };
    Thread {
        tid,
        ns_tid: tid,
        name: name.to_owned(),
        os_name: name.to_owned(),
        role: None,
        state,
        at: CallSite { call: Some(0), caller: None },
        frames: vec![frame],
        working: None,
        cuda_error: None,
        cuda_call: None,
    }
}
