//! Waits of NCCL's for other ranks on the processor, before anything is given to a GPU: for all ranks of a communicator that is made, or for
//! a peer to which it makes a connection.
//!
//! In: a thread, and the Flight Recorder of its process. Out: the target of its wait. The functions that wait there are
//! NCCL's own, and its symbols have their names. The functions that NCCL exports show the call, and PyTorch's functions
//! around them the operation. NCCL polls meanwhile. Other modules find the target of the GPU's own wait.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use super::recorder::{Entry, Recorder};
use super::{Operation, Waited, calls, label, making, objects, of_gpu};
use crate::image::{Addr, MemoryExt};
use crate::launcher;
use crate::limits::c10d::LARGEST_GROUP;
use crate::threads::Frame;
use crate::waits::collective::{Called, Collective};
use crate::waits::thread::{Process, ThreadView};

/// How the names of functions begin in which NCCL waits for another rank: its bootstrap's, its sockets', and the question to its own proxy
/// thread, which connects to a peer (NCCL 2.18 to 2.28: bootstrap.cc, misc/socket.cc, proxy.cc).
const WAITING: [&str; 10] = [
    "bootstrap",
    "socketProgress",
    "socketWait",
    "ncclSocketAccept",
    "ncclSocketConnect",
    "ncclSocketReady",
    "ncclSocketRecv",
    "ncclSocketSendRecv",
    "ncclPollProxyResponse",
    "ncclProxyCallBlocking",
];

/// Functions that NCCL exports (nccl.h) and that make a communicator: no rank leaves before all of its ranks have come.
const MAKING: [&str; 6] = [
    "ncclCommInitRank",
    "ncclCommInitRankConfig",
    "ncclCommInitRankScalable",
    "ncclCommInitAll",
    "ncclCommSplit",
    "ncclCommShrink",
];
/// Those that begin operations, and with them connections; the last is the function of a thread that does it for one of these.
const BEGINNING: [&str; 12] = [
    "ncclGroupEnd",
    "ncclSend",
    "ncclRecv",
    "ncclAllReduce",
    "ncclBroadcast",
    "ncclBcast",
    "ncclReduce",
    "ncclAllGather",
    "ncclReduceScatter",
    "ncclAlltoAll",
    "ncclGroupSimulateEnd",
    "ncclAsyncJobMain",
];

/// Its own threads, which do so on behalf of others.
const SERVING: [&str; 2] = ["ncclProxyService", "bootstrapRoot"];

/// Functions of PyTorch's back end for NCCL, and what the Flight Recorder calls their operations.
const BACK_END: &str = "c10d::ProcessGroupNCCL::";
const METHODS: &[(&str, &str)] = &[
    ("recv", "recv"),
    ("recvAnysource", "recv"),
    ("send", "send"),
    ("allreduce", "all_reduce"),
    ("allreduce_coalesced", "all_reduce_coalesced"),
    ("broadcast", "broadcast"),
    ("reduce", "reduce"),
    ("allgather", "all_gather"),
    ("_allgather_base", "all_gather"),
    ("reduce_scatter", "reduce_scatter"),
    ("_reduce_scatter_base", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("alltoall_base", "all_to_all"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("barrier", "barrier"),
];

/// The back end's object: its table of functions, its counters in one word or in two, then `rank_` and `size_` (Backend.hpp).
const CLASS: &str = "c10d::ProcessGroupNCCL";
const RANKS: [u64; 2] = [16, 24];

/// A call of NCCL's that a thread waits in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entered {
    /// The native frame of the outermost function.
    pub(super) native: usize,
    /// The function that waits.
    waits: String,
    /// `ncclGroupEnd`.
    pub(super) call: &'static str,
    /// A communicator is made.
    connects_all: bool,
    /// It is one of NCCL's own threads, which another one waits for.
    pub(super) serves: bool,
    /// The function of PyTorch that makes a group, if it is one of that.
    makes: Option<&'static str>,
    /// `all_reduce`, as the program called it.
    op: Option<&'static str>,
}

/// The call that a thread is in, if no code of Python runs inside of it.
pub(super) fn entered(thread: &ThreadView<'_>) -> Option<Entered> {
    let frames = &thread.thread?.frames;
    let inner = frames.iter().position(|frame| frame.python.is_some()).unwrap_or(frames.len());
    let mut named = frames.get(..inner)?.iter().filter_map(|frame| Some((frame.native?, named(frame)?)));
    let waits = named.find(|(_, name)| WAITING.iter().any(|beginning| name.starts_with(beginning)))?.1;
    let (mut outermost, mut call, mut connects_all, mut serves, mut op) = (None, None, false, false, None);
    for (native, name) in named {
        let exported = name.strip_prefix('p').unwrap_or(name);
        let known = |list: &[&'static str]| list.iter().find(|one| **one == exported).copied();
        if let Some(making) = known(&MAKING) {
            (outermost, call, connects_all) = (Some(native), Some(making), true);
        } else if let Some(beginning) = known(&BEGINNING) {
            // A communicator that is made within a group is made at its end.
            (outermost, call) = (Some(native), call.filter(|_| connects_all).or(Some(beginning)));
        } else if let Some(serving) = known(&SERVING) {
            (outermost, call, serves) = (Some(native), Some(serving), true);
        } else if let Some(method) = name.strip_prefix(BACK_END).filter(|_| call.is_some()) {
            outermost = Some(native);
            op = METHODS.iter().find(|(known, _)| *known == method).map(|(_, op)| *op).or(op);
        }
    }
    let (native, call) = (outermost?, call?);
    Some(Entered { native, waits: waits.to_owned(), call, connects_all, serves, makes: calls::making(frames), op })
}

/// A function's name without its arguments.
fn named(frame: &Frame) -> Option<&str> {
    let name = frame.function.as_deref()?;
    Some(name.split_once('(').map_or(name, |(name, _)| name))
}

impl Entered {
    /// The target of the thread's wait here.
    pub(super) fn wait(&self, process: &Process<'_>, thread: &ThreadView<'_>, recorder: Option<&Recorder>) -> Waited {
        let mut evidence = vec![format!("the call of NCCL is {}, which waits in {}", self.call, self.waits)];
        // The maker of a group calls NCCL, or waits for a key that another rank sets first.
        if let Some(function) = self.makes {
            return making(function, process, evidence);
        }
        let recorded = recorder.filter(|_| !self.connects_all).zip(self.op);
        let recorded = recorded.and_then(|(recorder, op)| Some((recorder, last_open(recorder, op)?)));
        let mut collective = match recorded {
            Some((recorder, entry)) => {
                evidence.push(recorder.says(entry));
                of_gpu(process, recorder, entry)
            }
            None => self.unrecorded(process, thread, &mut evidence),
        };
        collective.returns_to = thread.returns_to(self.native).map(|at| at.to_string());
        let open = |op: &str| {
            let all = recorder?.entries.iter().filter(|entry| is_open(entry, op));
            u32::try_from(all.count()).ok()
        };
        (collective.open_sends, collective.open_receives) = (open("send"), open("recv"));
        let label = match (recorded, self.op) {
            (Some(_), _) => label(&collective),
            (None, Some(op)) => format!("{} with other ranks, for {op}", self.call),
            (None, None) => format!("{} with other ranks", self.call),
        };
        Waited { collective, label, evidence, found: Operation::default() }
    }

    /// The facts known without the Flight Recorder. The missing ranks are known only where the group is that of the
    /// whole job.
    fn unrecorded(&self, process: &Process<'_>, thread: &ThreadView<'_>, evidence: &mut Vec<String>) -> Collective {
        let job = launcher::membership(&process.context.image.environment).and_then(|membership| membership.size);
        let place = place(process, thread, self.native);
        if let Some((rank, size)) = place {
            evidence.push(format!("its group has it as rank {rank} of {size}"));
        }
        Collective {
            backend: "nccl".to_owned(),
            op: self.call.to_owned(),
            rank: place.map(|(rank, _)| rank),
            size: place.map(|(_, size)| size),
            synchronises: self.connects_all && place.is_some_and(|(_, size)| Some(size) == job),
            ..Collective::default()
        }
    }
}

fn is_open(entry: &Entry, op: &str) -> bool {
    let called = Called::of(&entry.name);
    !entry.retired && called.backend == "nccl" && called.op == op
}

/// The operation that was enqueued last, of those of this kind that are not done.
pub(super) fn last_open<'r>(recorder: &'r Recorder, op: &str) -> Option<&'r Entry> {
    recorder.entries.iter().filter(|entry| is_open(entry, op)).max_by_key(|entry| entry.id)
}

/// Rank and size of the group whose back end the calls up to this frame are of, if there is one such object.
fn place(process: &Process<'_>, thread: &ThreadView<'_>, native: usize) -> Option<(u32, u32)> {
    let objects = objects::candidates(process, thread, native)?;
    let mut groups = objects.filter(|at| objects::class(process, *at).as_deref() == Some(CLASS));
    let group = groups.next()?;
    if groups.next().is_some() {
        return None;
    }
    let number = |at: Addr| process.memory().u32(at).ok();
    let both = RANKS.into_iter().filter_map(|offset| Some((number(group + offset)?, number(group + offset + 4)?)));
    let mut fitting = both.filter(|(rank, size)| rank < size && *size <= LARGEST_GROUP);
    fitting.next()
}
