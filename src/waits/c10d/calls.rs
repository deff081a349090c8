//! The calls of c10d that wait for other ranks, by their names, and the names of its operations.
//!
//! In: a thread's merged stack. Out: [`Entered`], the outermost such call inside the innermost code of Python. Nothing is read.

use crate::threads::Frame;
use crate::waits::thread::ThreadView;

/// The target of a call's wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// That an operation is done, which a thread of the back end works on.
    Work,
    /// A message.
    Receive,
    /// That a message is taken.
    Send,
    /// All other ranks, one after the other.
    MonitoredBarrier,
    /// It works on an operation for others to wait for.
    Runs,
    /// The other ranks of a group that is made.
    Makes,
    /// The setting of a key.
    Store,
}

/// How the names of these functions begin, as PyTorch 1.13 to 2.15 have them.
const CALLS: &[(&str, Role)] = &[
    ("c10d::Work::wait(", Role::Work),
    ("c10d::ProcessGroup::Work::wait(", Role::Work),
    ("c10d::ProcessGroupGloo::RecvWork::wait(", Role::Receive),
    ("c10d::ProcessGroupGloo::SendWork::wait(", Role::Send),
    ("c10d::ProcessGroupGloo::monitoredBarrier(", Role::MonitoredBarrier),
    ("c10d::ProcessGroupGloo::AsyncWork::execute(", Role::Runs),
    ("c10d::ProcessGroupGloo::ProcessGroupGloo(", Role::Makes),
    ("gloo::rendezvous::Context::connectFullMesh(", Role::Makes),
    ("c10d::TCPStore::", Role::Store),
    ("c10d::FileStore::wait(", Role::Store),
    ("c10d::FileStore::get(", Role::Store),
    ("c10d::HashStore::wait(", Role::Store),
    ("c10d::HashStore::get(", Role::Store),
    ("c10d::PrefixStore::wait(", Role::Store),
    ("c10d::PrefixStore::get(", Role::Store),
];

/// Functions of torch/distributed/distributed_c10d.py that no rank leaves before all have come.
const GATHERING: [&str; 4] = ["init_process_group", "new_group", "split_group", "_store_based_barrier"];

/// A call that waits for other ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entered {
    /// Its native frame.
    pub(super) native: usize,
    pub(super) role: Role,
    /// The native frames of the call and of its callees: those before this number.
    pub(super) stored: Option<usize>,
    /// The function of PyTorch that makes a group, if it is one of that.
    pub(super) makes: Option<&'static str>,
}

/// The call that a thread is in, if no code of Python runs inside of it.
pub(super) fn entered(thread: &ThreadView<'_>) -> Option<Entered> {
    let frames = &thread.thread?.frames;
    let inner = frames.iter().position(|frame| frame.python.is_some()).unwrap_or(frames.len());
    let called = |frame: &Frame| {
        let name = frame.function.as_deref()?;
        let role = CALLS.iter().find(|(beginning, _)| name.starts_with(beginning))?.1;
        Some((frame.native?, role))
    };
    let calls: Vec<(usize, Role)> = frames.get(..inner)?.iter().filter_map(called).collect();
    let (native, role) = *calls.last()?;
    let stored = calls.iter().rfind(|(_, role)| *role == Role::Store).map(|(native, _)| *native);
    Some(Entered { native, role, stored, makes: making(frames) })
}

/// The function of PyTorch's that makes a group or waits until all have made one.
pub(super) fn making(frames: &[Frame]) -> Option<&'static str> {
    let own = |frame: &&Frame| frame.origin.is_package("torch.distributed.distributed_c10d");
    let named = |frame: &Frame| {
        let name = frame.function.as_deref()?;
        GATHERING.iter().find(|known| **known == name).copied()
    };
    // The outermost is what the program called.
    frames.iter().rev().filter(own).find_map(named)
}

/// Names of `c10d::OpType` (torch/csrc/distributed/c10d/Work.hpp), as the Flight Recorder has them.
const OPERATIONS: [&str; 19] = [
    "broadcast",
    "all_reduce",
    "all_reduce_coalesced",
    "reduce",
    "all_gather",
    "all_gather",
    "all_gather_coalesced",
    "gather",
    "scatter",
    "reduce_scatter",
    "all_to_all",
    "all_to_all",
    "send",
    "recv",
    "recv",
    "barrier",
    "reduce_scatter",
    "coalesced",
    "all_reduce_sparse",
];

/// The operation of this number.
pub(super) fn operation(number: u8) -> Option<&'static str> {
    OPERATIONS.get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_stands_once() {
        let names: BTreeSet<&str> = CALLS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), CALLS.len());
        assert_eq!((operation(1), operation(13), operation(200)), (Some("all_reduce"), Some("recv"), None));
    }
}
