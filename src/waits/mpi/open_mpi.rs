//! Requests of Open MPI, which describe themselves: whom a thread waits for, and in which communicator.
//!
//! In: a thread inside MPI. Out: [`Pending`] requests that it waits for. Every object of Open MPI begins with a pointer
//! to its class, and the class has its name, its parent and its size (opal/class/opal_object.h). So fields are found
//! from the ends of the parts that each class adds. This works in 4.1 and 5.0 alike, and no offset belongs to one
//! release. Where the program may have threads, the request itself proves that a thread waits for it. It points to the
//! waiter's synchronisation object, which lies on the waiter's stack (ompi/request/request.h, `req_complete`).
//! Elsewhere the arguments of the call show it, if they do. Data of another shape is not used.

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

use std::collections::BTreeSet;

use super::calls::{BOTH_WAYS, Call, Role};
use super::given::Given;
use super::pending::Pending;
use crate::image::{Addr, Memory, MemoryExt};
use crate::limits::mpi::{
    LARGEST_OBJECT, LONGEST_CLASS_NAME, LONGEST_GROUP_NAME, MOST_CANDIDATES, MOST_PARENTS, MOST_REQUESTS,
};
use crate::waits::thread::{Process, ThreadView};

/// Where fields of `opal_class_t` lie (opal/class/opal_object.h, 1.0 to 5.0).
mod class {
    pub(super) const NAME: u64 = 0;
    pub(super) const PARENT: u64 = 8;
    pub(super) const SIZE: u64 = 56;
}

/// Where fields of `mca_pml_base_request_t` lie, from its end (ompi/mca/pml/base/pml_base_request.h: `req_addr`, `req_count`,
/// `req_peer`, `req_tag`, `req_proc`, `req_sequence` are its last), and from its beginning, behind `ompi_request_t`: three words
/// of 4 bytes, then `req_comm`.
mod base_request {
    pub(super) const SEQUENCE: u64 = 8;
    pub(super) const PROCESS: u64 = 16;
    pub(super) const TAG: u64 = 20;
    pub(super) const PEER: u64 = 24;
    pub(super) const COMMUNICATOR: u64 = 16;
}

/// Where `req_status` lies in `ompi_request_t`, from the end of `opal_free_list_item_t`: behind `req_type` (4 bytes, padded to 8).
/// `MPI_SOURCE` and `MPI_TAG` are its first words, -1 and -1 until a message has come (pml_base_recvreq.h, MCA_PML_BASE_RECV_START).
const STATUS: u64 = 8;
/// Behind it `req_complete` and `req_state`.
const COMPLETE: u64 = STATUS + 24;
const STATE: u64 = COMPLETE + 8;
/// OMPI_REQUEST_ACTIVE.
const ACTIVE: u32 = 2;

/// The number of words after a communicator's name that are searched for its group (ompi/communicator/communicator.h).
const WORDS_OF_COMMUNICATOR: u64 = 32;

/// The requests that this thread waits for in `call`, whose native frame this is, in order of their addresses.
///
/// With threads (MPI_THREAD_MULTIPLE, as mpi4py requests it) a request names its waiter. Without, it only says that it
/// is pending: then the frames of the call must have exactly one that the call can be about. A collective's own have
/// tags below -1.
pub(super) fn pending(process: &Process<'_>, thread: &ThreadView<'_>, native: usize, call: &Call) -> Vec<Pending> {
    let memory = process.memory();
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let Some(end) = frames.get(native).and_then(|frame| frame.cfa) else { return Vec::new() };
    let given = Given::to(process, thread, native);
    let completions = completions(process, thread, &given, call);
    if !completions.is_empty() {
        return completions;
    }
    let registers = thread.registers(native.saturating_add(1)).into_iter().map(|(_, _, value)| value);
    let inside = thread.words(process).iter().filter(|(at, _)| *at < end).map(|(_, word)| *word);
    let words: BTreeSet<u64> = inside.chain(registers).collect();
    let is_object = |word: &u64| {
        let mapping = process.context.image.mapping(Addr(*word));
        word.is_multiple_of(8) && mapping.is_some_and(|mapping| mapping.write && !mapping.is_file())
    };
    let candidates = words.into_iter().filter(is_object).take(MOST_CANDIDATES).map(Addr);
    let found: Vec<Pending> =
        candidates.filter_map(|address| request(process, thread, memory, (address, ALONE))).collect();
    if let Some(both) = both_ways(&given, call, &found) {
        return both;
    }
    let (proven, pending): (Vec<Pending>, Vec<Pending>) = found.into_iter().partition(|one| one.is_waiters);
    if !proven.is_empty() {
        return proven;
    }
    let can_be = |one: &Pending| {
        let is_collectives = one.tag.is_some_and(|tag| tag < -1);
        match call.role {
            Role::Receive => one.receives && !is_collectives,
            Role::Send => !one.receives && !is_collectives,
            Role::Completion => call.operation == "wait" && !is_collectives,
            Role::Synchronising | Role::Collective => is_collectives,
            Role::OneSided => false,
        }
    };
    let fitting: Vec<Pending> = pending.into_iter().filter(can_be).collect();
    let is_collective = matches!(call.role, Role::Synchronising | Role::Collective);
    if fitting.len() == 1 || is_collective { fitting } else { Vec::new() }
}

/// Why a request that does not say so is the one that is waited for.
const ALONE: &str = "the frames of the call have no other that it can be about";
const GIVEN: &str = "the call was given it";

/// For a call with requests as arguments: those that are not over.
fn completions(process: &Process<'_>, thread: &ThreadView<'_>, given: &Given<'_>, call: &Call) -> Vec<Pending> {
    let Some((at, count)) = given.requests(call) else { return Vec::new() };
    let memory = process.memory();
    let places = (0..MOST_REQUESTS.min(count)).map_while(|place| at.0.checked_add(8 * u64::try_from(place).ok()?));
    let requests = places.map_while(|place| memory.u64(Addr(place)).ok());
    requests.filter_map(|at| request(process, thread, memory, (Addr(at), GIVEN))).collect()
}

/// For a call that sends and receives: the messages that match all of its arguments. `None` for another call, and where
/// two messages match the same.
fn both_ways(given: &Given<'_>, call: &Call, found: &[Pending]) -> Option<Vec<Pending>> {
    let (_, send, receive) = BOTH_WAYS.iter().find(|(name, ..)| *name == call.operation)?;
    let communicator = given.pointer(receive + 2)?;
    let of = |receives: bool, first: usize| -> Option<Vec<Pending>> {
        let (peer, tag) = given.number(first).zip(given.number(first + 1))?;
        let is_it = |one: &&Pending| {
            one.receives == receives
                && one.communicator == Some(communicator)
                && one.peer_in_group == Some(peer)
                && one.tag == Some(i64::from(tag))
        };
        let own: Vec<Pending> = found.iter().filter(is_it).cloned().collect();
        (own.len() <= 1).then_some(own)
    };
    let both = [of(true, *receive)?, of(false, *send)?].concat();
    (!both.is_empty()).then_some(both)
}

/// The pending request at an address, if there is one, and `why` it is waited for if it does not say so.
fn request(
    process: &Process<'_>,
    thread: &ThreadView<'_>,
    memory: &dyn Memory,
    (address, why): (Addr, &str),
) -> Option<Pending> {
    let own = class_of(process, memory, address)?;
    let name = own.name.as_str();
    if !name.starts_with("mca_pml_") || !name.ends_with("_request_t") {
        return None;
    }
    let receives = name.contains("recv");
    let base = own.ancestor(memory, "mca_pml_base_request_t")?;
    let request = base.ancestor(memory, "ompi_request_t")?;
    let item = request.parent(memory)?;
    // Null while it is pending, the waiter's synchronisation object while a thread waits for it, else 1.
    let complete = memory.u64(address + item.size + COMPLETE).ok()?;
    let state = memory.u32(address + item.size + STATE).ok()?;
    let is_waiters = thread.on_own_stack(Addr(complete));
    if state != ACTIVE || complete != 0 && !is_waiters {
        return None;
    }
    let field = |from_end: u64| base.size.checked_sub(from_end).map(|at| address + at);
    let number = memory.i32(field(base_request::PEER)?).ok()?;
    let tag = memory.i32(field(base_request::TAG)?).ok()?;
    let sequence = memory.u64(field(base_request::SEQUENCE)?).ok()?;
    let communicator = memory.u64(address + request.size + base_request::COMMUNICATOR).ok().map(Addr);
    let group = communicator.and_then(|at| communicator_at(process, memory, at));
    let job_rank = field(base_request::PROCESS)
        .and_then(|at| memory.u64(at).ok())
        .and_then(|at| rank_of_process(process, memory, Addr(at)));
    let is_world = group.as_ref().is_some_and(|group| group.name == "MPI_COMM_WORLD");
    let from_anybody = receives && number == -1;
    let peer = job_rank.or_else(|| u32::try_from(number).ok().filter(|_| is_world)).filter(|_| !from_anybody);
    let size = usize::try_from(own.size.min(LARGEST_OBJECT)).ok()?;
    let bytes = memory.bytes(address, size).ok()?;
    let status = address + item.size + STATUS;
    let source = memory.i32(status).ok();
    let status_tag = memory.i32(status + 4).ok();
    let matched = source.zip(status_tag).filter(|_| receives).map(|both| both != (-1, -1));
    let waited = match is_waiters {
        true => format!("points to the waiter's own stack ({})", Addr(complete)),
        false => format!("is pending, and {why}"),
    };
    let mut evidence = vec![format!(
        "{name} at {address} {waited}: peer {}, tag {tag}, number {sequence}",
        peer.map_or("any".to_owned(), |peer| format!("rank {peer}")),
    )];
    evidence.extend(
        group
            .as_ref()
            .map(|group| format!("its communicator is `{}`, rank {} of {}", group.name, group.rank, group.size)),
    );
    Some(Pending {
        address: Some(address),
        is_waiters,
        is_inferred: false,
        receives,
        peer,
        peer_in_group: Some(number),
        communicator,
        from_anybody,
        tag: Some(i64::from(tag)),
        sequence: Some(sequence),
        rank: group.as_ref().map(|group| group.rank),
        size: group.as_ref().map(|group| group.size),
        group: group.map(|group| group.name),
        mark: Some(digest(&bytes)),
        matched,
        evidence,
    })
}

/// A class of Open MPI.
#[derive(Debug, Clone)]
struct Class {
    at: Addr,
    name: String,
    size: u64,
}

impl Class {
    fn read(memory: &dyn Memory, at: Addr) -> Option<Class> {
        let name = memory.u64(at + class::NAME).ok().map(Addr)?;
        let bytes = text(memory, name, LONGEST_CLASS_NAME)?;
        let size = memory.u64(at + class::SIZE).ok().filter(|size| (16..=LARGEST_OBJECT).contains(size))?;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (!bytes.is_empty() && bytes.bytes().all(is_word)).then_some(Class { at, name: bytes, size })
    }

    fn parent(&self, memory: &dyn Memory) -> Option<Class> {
        let parent = Class::read(memory, Addr(memory.u64(self.at + class::PARENT).ok()?))?;
        (parent.at != self.at && parent.size <= self.size).then_some(parent)
    }

    /// The class of this name that it is made from.
    fn ancestor(&self, memory: &dyn Memory, name: &str) -> Option<Class> {
        let mut at = self.clone();
        for _ in 0..MOST_PARENTS {
            if at.name == name {
                return Some(at);
            }
            at = at.parent(memory)?;
        }
        None
    }
}

/// The class of the object at `address`: it lies in the data of a library.
fn class_of(process: &Process<'_>, memory: &dyn Memory, address: Addr) -> Option<Class> {
    let class = Addr(memory.u64(address).ok()?);
    let mapping = process.context.image.mapping(class)?;
    (mapping.is_file() && class.0.is_multiple_of(8)).then(|| Class::read(memory, class)).flatten()
}

/// A communicator.
#[derive(Debug)]
struct Group {
    name: String,
    rank: u32,
    size: u32,
}

/// The communicator at `address`: behind what it inherits and its lock stands its name, and near behind that its group.
fn communicator_at(process: &Process<'_>, memory: &dyn Memory, address: Addr) -> Option<Group> {
    let own = class_of(process, memory, address).filter(|own| own.name == "ompi_communicator_t")?;
    let inherited = own.parent(memory)?.size;
    let lock = class_of(process, memory, address + inherited).filter(|lock| lock.name == "opal_mutex_t")?;
    // 4.1 has the letters there, 5.0 a pointer to them.
    let named = address + inherited + lock.size;
    let elsewhere = memory.u64(named).ok().map(Addr).filter(|at| process.context.image.mapping(*at).is_some());
    let name = text(memory, elsewhere.unwrap_or(named), LONGEST_GROUP_NAME)?;
    let words = (0..WORDS_OF_COMMUNICATOR).filter_map(|word| memory.u64(named + 8 * word).ok());
    words.into_iter().find_map(|word| {
        let group = Addr(word);
        let class = class_of(process, memory, group).filter(|class| class.name == "ompi_group_t")?;
        // `grp_proc_count`, `grp_my_rank` behind `opal_object_t` (ompi/group/group.h).
        let base = class.parent(memory)?.size;
        let size = u32::try_from(memory.i32(group + base).ok()?).ok()?;
        let rank = u32::try_from(memory.i32(group + base + 4).ok()?).ok()?;
        (rank < size).then(|| Group { name: name.clone(), rank, size })
    })
}

/// The rank in the job of the process that an `ompi_proc_t` stands for: job and rank stand behind what `opal_proc_t` inherits
/// (opal/util/proc.h).
fn rank_of_process(process: &Process<'_>, memory: &dyn Memory, address: Addr) -> Option<u32> {
    let class = class_of(process, memory, address).filter(|class| class.name == "ompi_proc_t")?;
    let item = class.ancestor(memory, "opal_proc_t")?.parent(memory)?;
    let rank = memory.u32(address + item.size + 4).ok()?;
    (rank < u32::MAX - 16).then_some(rank)
}

/// Text up to its 0 byte.
fn text(memory: &dyn Memory, address: Addr, most: usize) -> Option<String> {
    let mut bytes = Vec::new();
    while bytes.len() < most {
        let piece = memory.u64(address + u64::try_from(bytes.len()).ok()?).ok()?.to_le_bytes();
        match piece.iter().position(|byte| *byte == 0) {
            Some(end) => {
                bytes.extend(piece.get(..end)?);
                break;
            }
            None => bytes.extend(piece),
        }
    }
    String::from_utf8(bytes).ok().filter(|text| text.len() <= most)
}

/// 64 bits of FNV-1a: two samples compare them, no attacker forges them.
fn digest(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}
