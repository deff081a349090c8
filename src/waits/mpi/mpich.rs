//! Calls of MPICH: whom a thread waits for, by the arguments of the call, and by its requests.
//!
//! In: a thread inside MPI. Out: its [`Pending`] operation. MPICH's own symbols are stripped from most builds, and its
//! requests differ with version, device and transport. The parameters of `MPI_Recv` do not differ, and compilers keep
//! them for error messages. They are followed through the code, so the result is an inference. A pending request on the
//! call's stack with the same communicator, source and tag makes it exact. `MPI_Wait` and its like are decoded through
//! the requests behind their handles (`mpich_requests`).
//!
//! No number distinguishes two calls with the same arguments (a request is used again at the same address), so there is
//! no mark. Other code counts from outside whether such a wait lasted, by the return address of the call. The messages
//! that are not over (`mpich_open`) show which ones may still come.

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

use std::collections::{BTreeMap, BTreeSet};

use super::calls::{BOTH_WAYS, Call, Role};
use super::given::Given;
use super::mpich_requests::{ANY_SOURCE, Communication, Request, handle};
use super::pending::Pending;
use crate::image::{Addr, Memory, MemoryExt};
use crate::limits::mpi::{MOST_CANDIDATES, MOST_REQUESTS};
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

/// MPI_COMM_WORLD.
const WORLD: u32 = 0x4400_0000;

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

/// The known targets of this thread's wait in `call`, whose native frame this is; receives first. `objects` are the
/// targets of pointers in the call's own frames.
pub(super) fn pending(
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    native: usize,
    call: &Call,
    objects: &[Addr],
) -> Vec<Pending> {
    let given = Given::to(process, thread, native);
    let argument = |number: usize| given.number(number);
    let memory = process.memory();
    if let Some((at, count)) = given.requests(call) {
        return completions(memory, objects, &handles(memory, at, count));
    }
    let handle = |number: usize| {
        argument(number).map(i32::cast_unsigned).filter(|handle| handle::is(*handle, handle::COMMUNICATOR))
    };
    if let Some((_, send, receive)) = BOTH_WAYS.iter().find(|(name, ..)| *name == call.operation) {
        let Some(handle) = handle(receive + 2) else { return Vec::new() };
        let ends = |first: usize| Arguments { handle, peer: Some(argument(first)), tag: Some(argument(first + 1)) };
        return both_ways(memory, objects, call, ends(*send), ends(*receive));
    }
    let Some(parameters) = PARAMETERS.iter().find(|known| known.operation == call.operation) else { return Vec::new() };
    let Some(handle) = handle(parameters.communicator) else { return Vec::new() };
    let arguments = Arguments { handle, peer: parameters.peer.map(argument), tag: parameters.tag.map(argument) };
    let receives = call.role == Role::Receive;
    let found = account(memory, objects, call, receives, arguments);
    let is_of_all = parameters.peer.is_none() && handle != WORLD;
    match found {
        Some(one) if is_of_all => with_others(memory, objects, handle, one),
        found => found.into_iter().collect(),
    }
}

/// An operation of all ranks of a communicator, once for each of the others.
fn with_others(memory: &dyn Memory, objects: &[Addr], handle: u32, one: Pending) -> Vec<Pending> {
    let own = objects.iter().find_map(|at| Communicator::at(memory, *at, handle));
    let others = own.filter(|own| usize::try_from(own.size).is_ok_and(|size| size <= MOST_REQUESTS)).and_then(|own| {
        let others = (0..own.size).filter(|rank| *rank != own.rank);
        others.map(|rank| own.rank_in_job(memory, rank)).collect::<Option<Vec<u32>>>()
    });
    let of = |peer: u32| Pending { peer: Some(peer), is_inferred: true, ..one.clone() };
    match others {
        Some(others) if !others.is_empty() => others.into_iter().map(of).collect(),
        _ => vec![one],
    }
}

/// The arguments of a call: those that it has, as far as they are known.
#[derive(Debug, Clone, Copy)]
struct Arguments {
    handle: u32,
    peer: Option<Option<i32>>,
    tag: Option<Option<i32>>,
}

impl Arguments {
    /// Whether they are those of a request.
    fn are_of(self, request: &Request) -> bool {
        let is_its = match request.communicator {
            Communication::Object(_, own) => own == self.handle,
            Communication::Context(context) => (context == 0) == (self.handle == WORLD),
            Communication::Unsaid => false,
        };
        let is_same = |own: Option<i32>, argument: Option<Option<i32>>| own.is_some() && own == argument.flatten();
        is_its && is_same(request.source, self.peer) && is_same(request.tag, self.tag)
    }
}

/// The name of a communicator for people.
fn group(handle: Option<u32>, context: Option<u32>) -> Option<String> {
    match (handle, context) {
        (Some(WORLD), _) | (None, Some(0)) => Some("MPI_COMM_WORLD".to_owned()),
        (_, Some(context)) => Some(format!("the communicator with context {context}")),
        // An object without a unique identity is not compared.
        _ => None,
    }
}

/// The pending operation by the arguments and these objects of the call.
fn account(
    memory: &dyn Memory,
    objects: &[Addr],
    call: &Call,
    receives: bool,
    arguments: Arguments,
) -> Option<Pending> {
    let Arguments { handle, peer, tag } = arguments;
    let own = objects.iter().find_map(|at| Communicator::at(memory, *at, handle));
    let is_message = tag.is_some();
    let mut requests = objects.iter().filter_map(|at| Request::at(memory, *at));
    let request =
        if receives && is_message { requests.find(|one| one.receives && arguments.are_of(one)) } else { None };
    let by_request = request.and_then(|request| match request.communicator {
        Communication::Context(context) => Some(context),
        _ => None,
    });
    let group = group(Some(handle), own.as_ref().map(|own| own.context).or(by_request))?;
    let number = peer.flatten();
    let from_anybody = receives && number == Some(ANY_SOURCE);
    let is_own = |rank: &u32| own.as_ref().is_some_and(|own| own.rank == *rank);
    let rank = number.and_then(|number| u32::try_from(number).ok());
    // The root itself waits for others.
    let rank = rank.filter(|rank| is_message || !is_own(rank) && own.is_some());
    let in_job = rank.and_then(|rank| in_job(memory, handle == WORLD, own.as_ref(), rank));
    let mut evidence = vec![format!("by its arguments {} is of {group} (handle {handle:#x})", call.name)];
    evidence.extend(number.map(|number| match tag.flatten() {
        Some(tag) => format!("its peer there is {number}, its tag {tag}"),
        None => format!("its peer there is {number}"),
    }));
    evidence.extend(request.map(|one| format!("MPIR_Request at {} is a pending receive with the same", one.at)));
    Some(Pending {
        address: request.map(|request| request.at),
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

/// The number in the job of a rank of a communicator.
fn in_job(memory: &dyn Memory, is_world: bool, own: Option<&Communicator>, rank: u32) -> Option<u32> {
    if is_world { Some(rank) } else { own.and_then(|own| own.rank_in_job(memory, rank)) }
}

/// The messages that a call waits for that sends and receives: the pending ones. Where no request is found, the
/// arguments alone show them.
fn both_ways(memory: &dyn Memory, objects: &[Addr], call: &Call, send: Arguments, receive: Arguments) -> Vec<Pending> {
    let received = account(memory, objects, call, true, receive);
    let requests: Vec<Request> = objects.iter().filter_map(|at| Request::at(memory, *at)).collect();
    let is_sends = |one: &&Request| {
        !one.receives && matches!(one.communicator, Communication::Object(_, own) if own == send.handle)
    };
    let sends = requests.iter().find(is_sends);
    let sent = account(memory, objects, call, false, send).map(|mut sent| {
        sent.address = sends.map(|one| one.at);
        sent.evidence.extend(sends.map(|one| format!("MPIR_Request at {} is a pending send there", one.at)));
        sent
    });
    let (received, sent) = (received.into_iter(), sent.into_iter());
    let both = received.chain(sent);
    let is_found = |one: &Pending| one.address.is_some();
    let (found, others): (Vec<Pending>, Vec<Pending>) = both.partition(is_found);
    if found.is_empty() { others } else { found }
}

/// The handles of `count` requests.
fn handles(memory: &dyn Memory, at: Addr, count: usize) -> Vec<u32> {
    let places = (0..MOST_REQUESTS.min(count)).map_while(|place| at.0.checked_add(4 * u64::try_from(place).ok()?));
    places.map_while(|place| memory.u32(Addr(place)).ok()).collect()
}

/// The messages of these handles that are not over, receives first. Requests of other kinds are none.
fn completions(memory: &dyn Memory, objects: &[Addr], handles: &[u32]) -> Vec<Pending> {
    let mut found: BTreeMap<u32, Addr> = BTreeMap::new();
    let of = |handle: u32, at: Addr| memory.u32(at).is_ok_and(|own| own == handle);
    for at in objects {
        if let Some(request) = Request::at(memory, *at).filter(|one| handles.contains(&one.handle)) {
            found.entry(request.handle).or_insert(request.at);
        }
    }
    // Many are kept in an array behind each other, to which the call's frames point.
    let is_request = |handle: &&u32| handle::is(**handle, handle::REQUEST);
    let first = handles.iter().enumerate().find(|(_, handle)| is_request(handle) && !found.contains_key(handle));
    if let Some((place, handle)) = first.and_then(|(place, handle)| Some((u64::try_from(place).ok()?, *handle))) {
        let entry = |array: Addr, place: u64| Some(Addr(memory.u64(Addr(array.0.checked_add(8 * place)?)).ok()?));
        let array = objects.iter().find(|array| entry(**array, place).is_some_and(|at| of(handle, at)));
        for (place, handle) in (0..).zip(handles).filter(|(_, handle)| is_request(handle)) {
            if let Some(at) = array.and_then(|array| entry(*array, place)).filter(|at| of(*handle, *at)) {
                found.entry(*handle).or_insert(at);
            }
        }
    }
    let requests = handles.iter().filter_map(|handle| Request::at(memory, *found.get(handle)?));
    let mut pending: Vec<Pending> = requests.map(|request| completion(memory, &request)).collect();
    pending.sort_by_key(|one| !one.receives);
    pending
}

/// The pending operation of a request.
fn completion(memory: &dyn Memory, request: &Request) -> Pending {
    let (handle, own, context) = match request.communicator {
        Communication::Object(at, handle) => (Some(handle), Communicator::at(memory, at, handle), None),
        Communication::Context(context) => (None, None, Some(context)),
        Communication::Unsaid => (None, None, None),
    };
    let group = group(handle, own.as_ref().map(|own| own.context).or(context));
    let is_world = handle == Some(WORLD) || context == Some(0);
    let rank = request.source.and_then(|source| u32::try_from(source).ok());
    let what = if request.receives { "receive" } else { "send" };
    let mut evidence = vec![format!("MPIR_Request at {} is one of the call's, a pending {what}", request.at)];
    evidence.extend(group.as_ref().map(|group| format!("it is of {group}")));
    evidence.extend(
        request.source.zip(request.tag).map(|(source, tag)| format!("its peer there is {source}, its tag {tag}")),
    );
    Pending {
        address: Some(request.at),
        receives: request.receives,
        peer: rank.and_then(|rank| in_job(memory, is_world, own.as_ref(), rank)),
        from_anybody: request.source == Some(ANY_SOURCE),
        tag: request.tag.map(i64::from).filter(|tag| *tag >= 0),
        group,
        rank: own.as_ref().map(|own| own.rank),
        size: own.as_ref().map(|own| own.size),
        evidence,
        ..Pending::default()
    }
}

/// The targets of words in the call's own frames and registers, where an object may lie.
pub(super) fn objects(process: &Process<'_>, thread: &ThreadView<'_>, native: usize) -> Vec<Addr> {
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let Some(end) = frames.get(native).and_then(|frame| frame.cfa) else { return Vec::new() };
    let registers = thread.registers(native.saturating_add(1)).into_iter().map(|(_, _, value)| value);
    let inside = thread.words(process).iter().filter(|(at, _)| *at < end).map(|(_, word)| *word);
    let words: BTreeSet<u64> = inside.chain(registers).filter(|word| word.is_multiple_of(8)).collect();
    let can_be = |at: &Addr| process.context.image.mapping(*at).is_some_and(|mapping| mapping.write);
    words.into_iter().map(Addr).filter(can_be).take(MOST_CANDIDATES).collect()
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
            // The stride of a turned group is below 0.
            0 => u64::from(rank).wrapping_mul(word(group::STRIDE)?).wrapping_add(word(group::OFFSET)?),
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
        let call = call(name).expect("a call");
        account(&made.bytes, &objects, &call, call.role == Role::Receive, arguments)
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
        made.u64(GROUP + 24, 2);
        made.u64(GROUP + 32, u64::MAX);
        assert_eq!(told(&made, "MPI_Recv", of(OTHER, 2, 40)).and_then(|one| one.peer), Some(0), "turned");
        made.u64(GROUP + 24, 0);
        assert_eq!(told(&made, "MPI_Recv", of(OTHER, 2, 40)).and_then(|one| one.peer), None, "below the first");
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
    fn who_waits_for_requests_waits_for_those_that_are_pending() {
        const SEND: u64 = REQUEST + 0x400;
        const OVER: u64 = REQUEST + 0x800;
        const ARRAY: u64 = REQUEST + 0xc00;
        let mut made = receives();
        for (at, handle, kind, left) in [(SEND, 0xac00_0001, 1, 1), (OVER, 0xac00_0002, 2, 0)] {
            let words = [handle, kind, at + 24, left, COMMUNICATOR, 0, 0x0000_0029_0000_0002];
            for (number, word) in (0..).zip(words) {
                made.u64(at + 8 * number, word);
            }
        }
        let handles = [0xac00_0002, 0xac00_0001, 0xac00_0000, 0x2c00_0000];
        for (place, at) in (0..).zip([OVER, SEND, REQUEST, 0]) {
            made.u64(ARRAY + 8 * place, at);
            made.u32(ARRAY + 0x100 + 4 * place, handles[place as usize]);
        }
        assert_eq!(super::handles(&made.bytes, Addr(ARRAY + 0x100), 4), handles);
        let told = |objects: &[u64]| {
            let objects: Vec<Addr> = objects.iter().copied().map(Addr).collect();
            completions(&made.bytes, &objects, &handles)
        };
        for objects in [&[OVER, REQUEST, SEND][..], &[COMMUNICATOR, ARRAY], &[ARRAY, SEND]] {
            let [receive, send] = &told(objects)[..] else { panic!("{objects:x?}: {:?}", told(objects)) };
            assert_eq!((receive.peer, receive.tag, receive.is_inferred), (Some(1), Some(40), false));
            assert_eq!((send.peer, send.tag, send.receives), (None, None, false), "a send does not say to whom");
            assert_eq!((send.group.as_deref(), send.address), (Some("MPI_COMM_WORLD"), Some(Addr(SEND))));
        }
        assert!(told(&[]).is_empty());
        assert_eq!(completions(&made.bytes, &[Addr(REQUEST)], &[0xac00_0001]), [], "a request of another call");
    }

    #[test]
    fn who_sends_and_receives_waits_for_what_is_pending_of_both() {
        let both = |made: &Made, source: i32| {
            let objects = [Addr(COMMUNICATOR), Addr(REQUEST)];
            let call = call("MPI_Sendrecv").expect("a call");
            both_ways(&made.bytes, &objects, &call, of(WORLD, 2, 41), of(WORLD, source, 40))
        };
        let told = |pending: &[Pending]| -> Vec<(bool, Option<u32>, Option<i64>, bool)> {
            pending.iter().map(|one| (one.receives, one.peer, one.tag, one.is_inferred)).collect()
        };
        assert_eq!(told(&both(&receives(), 1)), [(true, Some(1), Some(40), false)]);
        // By the arguments alone.
        let alone = [(true, Some(2), Some(40), true), (false, Some(2), Some(41), true)];
        assert_eq!(told(&both(&receives(), 2)), alone);
        let mut sends = receives();
        sends.u32(REQUEST + 8, 1);
        assert_eq!(
            told(&both(&sends, 1)),
            [(false, Some(2), Some(41), true)],
            "whom it goes to only the arguments say"
        );
    }
}
