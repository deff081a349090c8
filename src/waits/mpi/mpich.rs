//! Calls of MPICH: whom a thread waits for, by the arguments of the call, and by its request where that says the same.
//!
//! In: a thread inside MPI. Out: what it is [`Pending`] on. MPICH's own symbols are stripped from most builds, and its requests differ with
//! version, device and transport; the parameters of `MPI_Recv` do not, and compilers keep them for the message of an error. They are
//! followed through the code and so an inference; a pending request on the stack of the call with the same communicator,
//! source and tag makes them exact. Handles say what they are by their bits. No number tells two calls with the same arguments apart
//! (a request is used again at the same address), so there is no mark: that such waits stood still, nothing here can say.

// What it reads is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use std::collections::BTreeSet;

use super::calls::{Call, Role};
use super::pending::Pending;
use crate::code::Code;
use crate::image::{Addr, Memory, MemoryExt};
use crate::limits::mpi::MOST_CANDIDATES;
use crate::waits::thread::{Process, ThreadView};

/// Which parameters a call has, from 0.
struct Parameters {
    operation: &'static str,
    /// The other end of a message, or the root whose data all others need.
    peer: Option<usize>,
    tag: Option<usize>,
    communicator: usize,
}

const fn message(operation: &'static str, peer: usize) -> Parameters {
    Parameters { operation, peer: Some(peer), tag: Some(peer + 1), communicator: peer + 2 }
}

const fn of_all(operation: &'static str, communicator: usize) -> Parameters {
    Parameters { operation, peer: None, tag: None, communicator }
}

const fn from_root(operation: &'static str, root: usize) -> Parameters {
    Parameters { operation, peer: Some(root), tag: None, communicator: root + 1 }
}

/// The parameters of calls (MPI 5.0, A.3).
const PARAMETERS: [Parameters; 17] = [
    message("recv", 3),
    message("send", 3),
    message("ssend", 3),
    message("rsend", 3),
    message("bsend", 3),
    message("probe", 0),
    message("mprobe", 0),
    of_all("barrier", 0),
    of_all("comm_dup", 0),
    of_all("comm_split", 0),
    of_all("allreduce", 5),
    of_all("reduce_scatter_block", 5),
    of_all("reduce_scatter", 5),
    of_all("allgather", 6),
    of_all("alltoall", 6),
    from_root("bcast", 3),
    from_root("scatter", 6),
];

/// MPI_ANY_SOURCE (src/include/mpi.h.in, 3.0 to 5.0).
const ANY_SOURCE: i32 = -2;
/// MPI_COMM_WORLD.
const WORLD: u32 = 0x4400_0000;

/// The bits of a handle (src/include/mpir_objects.h, 1.0 to 5.0: HANDLE_GET_MPI_KIND, HANDLE_GET_KIND).
mod handle {
    pub(super) const COMMUNICATOR: u32 = 0x1;
    pub(super) const GROUP: u32 = 0x2;
    pub(super) const REQUEST: u32 = 0xb;

    /// Whether it is a handle of such a thing.
    pub(super) fn is(handle: u32, kind: u32) -> bool {
        handle >> 30 != 0 && (handle >> 26) & 0xf == kind
    }
}

/// Where fields of `MPIR_Request` lie (src/include/mpir_request.h). The counter of what is left to do stands where the pointer in front of it
/// leads. The communicator, with the status behind it, is the next word since 4.1, in 4.0 there is one in between.
mod request {
    pub(super) const KIND: u64 = 8;
    pub(super) const COUNTER_POINTER: u64 = 16;
    pub(super) const COUNTER: u64 = 24;
    pub(super) const COMMUNICATOR: [u64; 2] = [32, 40];
    /// From the communicator on, behind the two words of `count`.
    pub(super) const SOURCE: u64 = 16;
    pub(super) const TAG: u64 = 20;
    /// MPIR_REQUEST_KIND__RECV.
    pub(super) const RECEIVE: u32 = 2;
}

/// Where fields of `MPIR_Comm` lie (src/include/mpir_comm.h, 5.0).
mod communicator {
    pub(super) const CONTEXT: u64 = 12;
    pub(super) const RECEIVE_CONTEXT: u64 = 16;
    pub(super) const RANK: u64 = 20;
    pub(super) const SIZE: u64 = 24;
    pub(super) const GROUP: u64 = 32;
}

/// Where fields of `MPIR_Group` lie (src/include/mpir_group.h, 5.0): its ranks are those of the job from `OFFSET` on, each `STRIDE` further,
/// or there is a table of them.
mod group {
    pub(super) const SIZE: u64 = 8;
    pub(super) const RANK: u64 = 12;
    pub(super) const HAS_TABLE: u64 = 16;
    pub(super) const TABLE: u64 = 24;
    pub(super) const OFFSET: u64 = 24;
    pub(super) const STRIDE: u64 = 32;
}

/// What this thread waits for in `call`, whose native frame this is, if that is known.
pub(super) fn pending(process: &Process<'_>, thread: &ThreadView<'_>, native: usize, call: &Call) -> Option<Pending> {
    let parameters = PARAMETERS.iter().find(|known| known.operation == call.operation)?;
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let code = Code::new(process.context.image, process.context.symbols);
    let argument = |number: usize| code.int_parameter(frames, native, number);
    let handle = argument(parameters.communicator)?.cast_unsigned();
    let peer = parameters.peer.map(argument);
    let tag = parameters.tag.map(argument);
    if !handle::is(handle, handle::COMMUNICATOR) {
        return None;
    }
    account(process.memory(), &objects(process, thread, native), call, Arguments { handle, peer, tag })
}

/// The arguments of a call: those that it has, as far as they are known.
#[derive(Debug, Clone, Copy)]
struct Arguments {
    handle: u32,
    peer: Option<Option<i32>>,
    tag: Option<Option<i32>>,
}

/// What the arguments and these objects of its come to.
fn account(memory: &dyn Memory, objects: &[Addr], call: &Call, arguments: Arguments) -> Option<Pending> {
    let Arguments { handle, peer, tag } = arguments;
    let own = objects.iter().find_map(|at| Communicator::at(memory, *at, handle));
    let group = match (handle, &own) {
        (WORLD, _) => Some("MPI_COMM_WORLD".to_owned()),
        (_, Some(own)) => Some(format!("the communicator with context {}", own.context)),
        _ => None,
    };
    // Of a communicator that can't be told from others nothing is known that other ranks could be compared with.
    let group = group?;
    let is_message = tag.is_some();
    let receives = call.role == Role::Receive;
    let number = peer.flatten();
    let from_anybody = receives && number == Some(ANY_SOURCE);
    let is_own = |rank: &u32| own.as_ref().is_some_and(|own| own.rank == *rank);
    let rank = number.and_then(|number| u32::try_from(number).ok());
    // Who is the root itself waits for others.
    let rank = rank.filter(|rank| is_message || !is_own(rank) && own.is_some());
    let in_job = rank.and_then(|rank| match (handle, &own) {
        (WORLD, _) => Some(rank),
        (_, Some(own)) => own.rank_in_job(memory, rank),
        _ => None,
    });
    let mut evidence = vec![format!("by its arguments {} is of {group} (handle {handle:#x})", call.name)];
    evidence.extend(number.map(|number| match tag.flatten() {
        Some(tag) => format!("its peer there is {number}, its tag {tag}"),
        None => format!("its peer there is {number}"),
    }));
    let request = (receives && is_message)
        .then(|| objects.iter().copied().find(|at| is_request(memory, *at, arguments)))
        .flatten();
    evidence.extend(request.map(|at| format!("MPIR_Request at {at} is a pending receive with the same")));
    Some(Pending {
        address: request,
        is_inferred: request.is_none(),
        receives,
        peer: in_job,
        from_anybody,
        tag: tag.flatten().map(i64::from),
        group: Some(group),
        rank: own.as_ref().map(|own| own.rank),
        size: own.as_ref().map(|own| own.size),
        evidence,
        ..Pending::default()
    })
}

/// What words of the call's own frames and registers point to, where an object may lie.
fn objects(process: &Process<'_>, thread: &ThreadView<'_>, native: usize) -> Vec<Addr> {
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let Some(end) = frames.get(native).and_then(|frame| frame.cfa) else { return Vec::new() };
    let registers = thread.registers(native.saturating_add(1)).into_iter().map(|(_, _, value)| value);
    let inside = thread.words(process).iter().filter(|(at, _)| *at < end).map(|(_, word)| *word);
    let words: BTreeSet<u64> = inside.chain(registers).filter(|word| word.is_multiple_of(8)).collect();
    let can_be = |at: &Addr| process.context.image.mapping(*at).is_some_and(|mapping| mapping.write);
    words.into_iter().map(Addr).filter(can_be).take(MOST_CANDIDATES).collect()
}

/// Whether there is the pending request of a receive with these arguments.
fn is_request(memory: &dyn Memory, at: Addr, arguments: Arguments) -> bool {
    let word = |offset: u64| memory.u32(at + offset).ok();
    let is_pending_receive = word(0).is_some_and(|own| handle::is(own, handle::REQUEST))
        && word(request::KIND) == Some(request::RECEIVE)
        && memory.u64(at + request::COUNTER_POINTER).ok() == Some((at + request::COUNTER).0)
        && word(request::COUNTER).is_some_and(|left| left != 0);
    let is_of = |offset: &u64| {
        let communicator = memory.u64(at + *offset).ok().map(Addr);
        let field = |behind: u64| memory.i32(at + *offset + behind).ok();
        communicator.and_then(|at| memory.u32(at).ok()) == Some(arguments.handle)
            && field(request::SOURCE) == arguments.peer.flatten()
            && field(request::TAG) == arguments.tag.flatten()
            && arguments.peer.flatten().is_some()
            && arguments.tag.flatten().is_some()
    };
    is_pending_receive && request::COMMUNICATOR.iter().any(is_of)
}

/// A communicator of ranks of one group.
#[derive(Debug)]
struct Communicator {
    /// The same on all its ranks.
    context: u32,
    rank: u32,
    size: u32,
    group: Addr,
}

impl Communicator {
    /// The one with this handle, if it is what lies there.
    fn at(memory: &dyn Memory, at: Addr, handle: u32) -> Option<Communicator> {
        let word = |offset: u64| memory.u32(at + offset).ok();
        word(0).filter(|own| *own == handle)?;
        let (context, rank, size) =
            (word(communicator::CONTEXT)?, word(communicator::RANK)?, word(communicator::SIZE)?);
        // Between two groups these are two, and the ranks those of the other one.
        word(communicator::RECEIVE_CONTEXT).filter(|other| *other == context)?;
        let group = Addr(memory.u64(at + communicator::GROUP).ok()?);
        let field = |offset: u64| memory.u32(group + offset).ok();
        let fits = field(0).is_some_and(|own| handle::is(own, handle::GROUP))
            && field(group::SIZE) == Some(size)
            && field(group::RANK) == Some(rank);
        (rank < size && fits).then_some(Communicator { context, rank, size, group })
    }

    /// The number in the job of a rank of its.
    fn rank_in_job(&self, memory: &dyn Memory, rank: u32) -> Option<u32> {
        let word = |offset: u64| memory.u64(self.group + offset).ok();
        let in_job = match word(group::HAS_TABLE)? & 0xff {
            0 => u64::from(rank).checked_mul(word(group::STRIDE)?)?.checked_add(word(group::OFFSET)?)?,
            1 => memory.u64(Addr(word(group::TABLE)?) + 8 * u64::from(rank)).ok()?,
            _ => return None,
        };
        // Beyond are processes of other worlds.
        u32::try_from(in_job).ok().filter(|_| rank < self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::super::calls::call;
    use super::*;
    use crate::waits::testing::Made;

    const REQUEST: u64 = 0x7f23_97d0_7700;
    const COMMUNICATOR: u64 = 0x7f23_97cb_79c0;
    const GROUP: u64 = 0x7f23_97ce_1770;

    /// Memory of rank 0 of 3 that receives from rank 1 with tag 40, as it was in MPICH 5.0.2 (64-bit words).
    fn receives() -> Made {
        let mut made = Made::new(&[10]);
        let objects: [(u64, &[u64]); 3] = [
            (
                REQUEST,
                &[
                    0x0000_0002_ac00_0000,
                    0x0000_7f23_0000_0002,
                    REQUEST + 24,
                    1,
                    COMMUNICATOR,
                    0,
                    0x0000_0028_0000_0001,
                    0,
                ],
            ),
            (COMMUNICATOR, &[0x0000_0002_4400_0000, 6, 0, 3, GROUP]),
            (GROUP, &[0x0000_0003_4800_0001, 3, 0, 0, 1]),
        ];
        for (at, words) in objects {
            for (number, word) in words.iter().enumerate() {
                made.u64(at + 8 * number as u64, *word);
            }
        }
        made
    }

    fn told(made: &Made, name: &str, arguments: Arguments) -> Option<Pending> {
        let objects = [Addr(COMMUNICATOR), Addr(REQUEST)];
        account(&made.bytes, &objects, &call(name).expect("a call"), arguments)
    }

    fn of(handle: u32, peer: i32, tag: i32) -> Arguments {
        Arguments { handle, peer: Some(Some(peer)), tag: Some(Some(tag)) }
    }

    #[test]
    fn a_request_with_the_same_arguments_makes_them_exact() {
        let one = told(&receives(), "MPI_Recv", of(WORLD, 1, 40)).expect("an account");
        assert_eq!((one.peer, one.tag, one.is_inferred, one.address), (Some(1), Some(40), false, Some(Addr(REQUEST))));
        assert_eq!((one.group.as_deref(), one.rank, one.size), (Some("MPI_COMM_WORLD"), Some(0), Some(3)));
        assert_eq!(one.mark, None, "nothing tells two such calls apart");
        let one = told(&receives(), "MPI_Recv", of(WORLD, 2, 40)).expect("an account");
        assert!(one.is_inferred && one.address.is_none(), "a request of another call");
        let mut done = receives();
        done.u64(REQUEST + 24, 0);
        assert!(told(&done, "MPI_Recv", of(WORLD, 1, 40)).is_some_and(|one| one.is_inferred));
    }

    #[test]
    fn from_anybody_is_from_nobody_in_particular() {
        let one = told(&receives(), "MPI_Recv", of(WORLD, ANY_SOURCE, 40)).expect("an account");
        assert!(one.from_anybody && one.peer.is_none());
        let nobody = told(&receives(), "MPI_Send", of(WORLD, -1, 40)).expect("an account");
        assert!(!nobody.from_anybody && nobody.peer.is_none(), "MPI_PROC_NULL");
    }

    #[test]
    fn ranks_of_other_communicators_are_translated_or_not_told() {
        const OTHER: u32 = 0x8400_0002;
        assert_eq!(told(&receives(), "MPI_Recv", of(OTHER, 1, 40)), None, "which one that is, is not known");
        let mut made = receives();
        made.u32(COMMUNICATOR, OTHER);
        made.u32(COMMUNICATOR + 12, 496);
        made.u32(COMMUNICATOR + 16, 496);
        made.u64(GROUP + 24, 4);
        made.u64(GROUP + 32, 2);
        let one = told(&made, "MPI_Recv", of(OTHER, 1, 40)).expect("an account");
        assert_eq!((one.peer, one.group.as_deref()), (Some(6), Some("the communicator with context 496")));
        made.u64(GROUP + 16, 1);
        made.u64(GROUP + 24, GROUP + 0x100);
        made.u64(GROUP + 0x108, 5);
        assert_eq!(told(&made, "MPI_Recv", of(OTHER, 1, 40)).and_then(|one| one.peer), Some(5));
        assert_eq!(told(&made, "MPI_Recv", of(OTHER, 3, 40)).and_then(|one| one.peer), None, "beyond its size");
        // Between two groups.
        made.u32(COMMUNICATOR + 16, 500);
        assert_eq!(told(&made, "MPI_Recv", of(OTHER, 1, 40)), None);
    }

    #[test]
    fn all_wait_for_the_root_but_the_root() {
        let with = |root: i32| Arguments { handle: WORLD, peer: Some(Some(root)), tag: None };
        let peer = |root: i32| told(&receives(), "MPI_Bcast", with(root)).and_then(|one| one.peer);
        assert_eq!((peer(2), peer(0)), (Some(2), None));
        let all = Arguments { handle: WORLD, peer: None, tag: None };
        let one = told(&receives(), "MPI_Barrier", all).expect("an account");
        assert!(one.peer.is_none() && one.tag.is_none() && one.group.is_some());
    }

    #[test]
    fn handles_say_what_they_are() {
        assert!(handle::is(WORLD, handle::COMMUNICATOR) && handle::is(0x8400_0002, handle::COMMUNICATOR));
        for other in [0, 1, 0x0400_0000, 0x4c00_0101, 0xffff_ffff, 0xac00_0000] {
            assert!(!handle::is(other, handle::COMMUNICATOR), "{other:#x}");
        }
    }
}
