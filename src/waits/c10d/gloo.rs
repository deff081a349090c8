//! Operations of gloo in memory: which one a thread waits for, and which ranks have not come to it.
//!
//! In: the condition that a thread sleeps on, or words of its frames. Out: an [`Operation`]. The first word of an
//! object leads to its class name. Objects without a name are known by a necessary property: a context has a rank below
//! its size, and its transport has the same two numbers and as many pairs. Distances count from such a landmark to the
//! next. They follow the order in which the classes have declared their members since 1.13 (Work.hpp) and 2.8
//! (ProcessGroupGloo.hpp, gloo/transport/tcp/context.h), seen on 2.15. Data of another shape is not used: the wait is
//! reported without it.

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

use super::objects::class;
use super::{calls, objects};
use crate::image::{Addr, Memory, MemoryExt};
use crate::limits::c10d::{LARGEST_GROUP, LARGEST_NUMBER, MOST_EXPECTED, WORDS_OF_OBJECT};
use crate::waits::thread::{Process, ThreadView};

/// Members of `c10d::Work`, from its condition on: `cv_`, `completed_`, `exception_`, `rank_`, `opType_`; and before it the table of
/// functions, a counter, and a mutex, which has 40 bytes in glibc.
mod work {
    pub(super) const CONDITION: u64 = 56;
    pub(super) const COMPLETED: u64 = 48;
    pub(super) const OPERATION: u64 = 68;
    pub(super) const END: u64 = 72;
}

/// From `context_` of `ProcessGroupGloo::AsyncWork` to `seq_`: a shared pointer, a duration, a vector, a pointer, a function.
const SEQUENCE_BEHIND_CONTEXT: u64 = 16 + 8 + 24 + 8 + 32;

/// Members of `gloo::transport::Context`: `rank`, `size` behind its table of functions; and those of the tcp one, from `pairs_` on:
/// `timeout_`, what peers have announced, what is expected of them.
mod transport {
    pub(super) const RANK: u64 = 8;
    pub(super) const SIZE: u64 = 12;
    pub(super) const EXPECTED_BEHIND_PAIRS: u64 = 56;
}

/// An element of the expected messages: the slot, the ranks that send, the ranks that receive.
mod expected {
    pub(super) const SIZE: u64 = 56;
    pub(super) const SENDERS: u64 = 8;
    pub(super) const RECEIVERS: u64 = 32;
}

/// Classes, as their tables of functions are named.
const BUFFER: &str = "gloo::transport::tcp::UnboundBuffer";
const CONTEXT: &str = "gloo::transport::tcp::Context";

/// The known facts about an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Operation {
    /// The work, or the buffer of a message.
    pub(super) address: Addr,
    /// `all_reduce`.
    pub(super) op: Option<&'static str>,
    pub(super) seq: Option<u64>,
    /// The tag of a message.
    pub(super) tag: Option<i64>,
    /// Own rank in the group, and its size.
    pub(super) place: Option<(u32, u32)>,
    /// Ranks in the group that have not said that they take part. `None`: not known.
    pub(super) expected: Option<Vec<u32>>,
    /// Words among which the recorder's number for it is.
    pub(super) words: Vec<u64>,
    pub(super) evidence: Vec<String>,
}

/// Whether a class is one of c10d's for operations: `c10d::(anonymous namespace)::AsyncBroadcastWork`.
fn is_work(class: &str) -> bool {
    class.starts_with("c10d::") && class.ends_with("Work")
}

/// The operation whose condition this is: it has its table of functions and a mutex before it.
pub(super) fn of_condition(process: &Process<'_>, condition: Addr) -> Option<Operation> {
    let before = (1..=WORDS_OF_OBJECT).filter_map(|word| condition.0.checked_sub(8 * word)).map(Addr);
    let (address, _) = before.filter_map(|at| Some((at, class(process, at)?))).find(|(_, class)| is_work(class))?;
    describe(process, address, condition)
}

/// The operation that a thread works on, by an object in the frames of a call.
pub(super) fn worked_on(process: &Process<'_>, thread: &ThreadView<'_>, native: usize) -> Option<Operation> {
    let candidates = objects::candidates(process, thread, native)?;
    let mut works = candidates.filter(|at| class(process, *at).is_some_and(|class| is_work(&class)));
    let first = works.next()?;
    let found = describe(process, first, first + work::CONDITION)?;
    works.next().is_none().then_some(found)
}

fn describe(process: &Process<'_>, address: Addr, condition: Addr) -> Option<Operation> {
    let memory = process.memory();
    let completed = memory.u8(condition + work::COMPLETED).ok().filter(|flag| *flag == 0)?;
    let number = memory.u8(condition + work::OPERATION).ok()?;
    let op = calls::operation(number);
    let mut found = Operation { address, op, ..Operation::default() };
    found.evidence.push(format!(
        "work at {address}: completed_ = {completed}, opType_ = {number} ({})",
        op.unwrap_or("an operation without a name")
    ));
    let behind = condition + work::END;
    let words: Vec<(Addr, u64)> =
        (0..WORDS_OF_OBJECT).map(|word| behind + 8 * word).map_while(|at| Some((at, memory.u64(at).ok()?))).collect();
    let context = words.iter().find_map(|(at, word)| Some((*at, context(process, Addr(*word))?)));
    if let Some((at, context)) = context {
        let seq = memory.u64(at + SEQUENCE_BEHIND_CONTEXT).ok().filter(|seq| (1..LARGEST_NUMBER).contains(seq));
        found.seq = seq;
        found.place = Some((context.rank, context.size));
        // Slots of collectives have their kind in the highest byte (gloo/types.h), those of messages the program's tag.
        let whose = |one: &Expected| if one.slot >> 56 == 0 { Vec::new() } else { one.ranks() };
        found.expected = context.expected(memory).map(|list| distinct(list.iter().flat_map(whose)));
        found.words = words.iter().filter(|(word, _)| *word < at).map(|(_, word)| *word).collect();
        let (rank, size) = (context.rank, context.size);
        found.evidence.push(format!("its context is of rank {rank} of {size}; seq_ = {}", seq.unwrap_or_default()));
    }
    Some(found)
}

/// The message of the buffer whose condition this is.
pub(super) fn message(process: &Process<'_>, condition: Addr, receives: bool) -> Option<Operation> {
    let memory = process.memory();
    let before = (1..=WORDS_OF_OBJECT).filter_map(|word| condition.0.checked_sub(8 * word)).map(Addr);
    let address = before.into_iter().find(|at| class(process, *at).as_deref() == Some(BUFFER))?;
    let mut found = Operation { address, op: Some(if receives { "recv" } else { "send" }), ..Operation::default() };
    let words = (1..WORDS_OF_OBJECT).filter_map(|word| memory.u64(address + 8 * word).ok());
    let context = words.into_iter().find_map(|word| Context::read(process, Addr(word)))?;
    found.place = Some((context.rank, context.size));
    let list = context.expected(memory)?;
    let wanted = |one: &&Expected| one.slot >> 56 == 0;
    let of = |one: &Expected| if receives { one.senders.clone() } else { one.receivers.clone() };
    let open: Vec<(u64, Vec<u32>)> =
        list.iter().filter(wanted).map(|one| (one.slot, of(one))).filter(|(_, ranks)| !ranks.is_empty()).collect();
    found.evidence.push(format!(
        "buffer at {address}: rank {} of {} expects {}",
        context.rank,
        context.size,
        match open.as_slice() {
            [] => "nobody else: it is on its way".to_owned(),
            _ => open.iter().map(|(slot, ranks)| format!("{ranks:?} in slot {slot}")).collect::<Vec<_>>().join(", "),
        }
    ));
    // With several messages, nothing shows which one this thread waits for.
    match open.as_slice() {
        [] => found.expected = Some(Vec::new()),
        [(slot, ranks)] if ranks.len() == 1 => {
            found.expected = Some(ranks.clone());
            found.tag = i64::try_from(*slot).ok();
        }
        _ => {}
    }
    Some(found)
}

/// A context of gloo's tcp transport.
#[derive(Debug, Clone, Copy)]
struct Context {
    rank: u32,
    size: u32,
    /// Where its vector of pairs is.
    pairs: Addr,
}

/// Whom an operation expects.
#[derive(Debug, Clone, Default)]
struct Expected {
    slot: u64,
    senders: Vec<u32>,
    receivers: Vec<u32>,
}

impl Expected {
    fn ranks(&self) -> Vec<u32> {
        self.senders.iter().chain(&self.receivers).copied().collect()
    }
}

/// The transport's context that the `gloo::Context` at `address` has: both have the same rank and size.
fn context(process: &Process<'_>, address: Addr) -> Option<Context> {
    let memory = process.memory();
    if !address.0.is_multiple_of(8) || process.context.image.mapping(address).is_none() {
        return None;
    }
    let rank = memory.u32(address).ok()?;
    let size = memory.u32(address + 4).ok()?;
    if rank >= size || size > LARGEST_GROUP {
        return None;
    }
    let words = (1..8).filter_map(|word| memory.u64(address + 8 * word).ok());
    let found = words.into_iter().find_map(|word| Context::read(process, Addr(word)))?;
    (found.rank == rank && found.size == size).then_some(found)
}

impl Context {
    fn read(process: &Process<'_>, address: Addr) -> Option<Context> {
        let memory = process.memory();
        let mapping = process.context.image.mapping(address)?;
        if !address.0.is_multiple_of(8) || mapping.is_file() || class(process, address).as_deref() != Some(CONTEXT) {
            return None;
        }
        let rank = memory.u32(address + transport::RANK).ok()?;
        let size = memory.u32(address + transport::SIZE).ok()?;
        let is_pairs = |at: &Addr| vector(memory, *at).is_some_and(|(begin, end)| end - begin == u64::from(size) * 8);
        let pairs = (2..16).map(|word| address + 8 * word).find(is_pairs)?;
        (rank < size && size <= LARGEST_GROUP).then_some(Context { rank, size, pairs })
    }

    /// The messages that it expects of other ranks; `None` where they are not readable.
    fn expected(&self, memory: &dyn Memory) -> Option<Vec<Expected>> {
        let (begin, end) = vector(memory, self.pairs + transport::EXPECTED_BEHIND_PAIRS)?;
        let length = end - begin;
        if !length.is_multiple_of(expected::SIZE) {
            return None;
        }
        let one = |at: Addr| -> Option<Expected> {
            Some(Expected {
                slot: memory.u64(at).ok()?,
                senders: self.numbers(memory, at + expected::SENDERS)?,
                receivers: self.numbers(memory, at + expected::RECEIVERS)?,
            })
        };
        (0..(length / expected::SIZE).min(MOST_EXPECTED)).map(|index| one(begin + index * expected::SIZE)).collect()
    }

    /// A vector of ranks of the group.
    fn numbers(&self, memory: &dyn Memory, at: Addr) -> Option<Vec<u32>> {
        let (begin, end) = vector(memory, at)?;
        let count = (end - begin) / 4;
        if count > 4 * u64::from(self.size) {
            return None;
        }
        let all: Option<Vec<u32>> = (0..count).map(|index| memory.u32(begin + 4 * index).ok()).collect();
        all.filter(|all| all.iter().all(|rank| *rank < self.size)).map(distinct)
    }
}

/// Begin and end of the vector at `at`.
pub(super) fn vector(memory: &dyn Memory, at: Addr) -> Option<(Addr, Addr)> {
    let begin = memory.u64(at).ok()?;
    let end = memory.u64(at + 8).ok()?;
    let room = memory.u64(at + 16).ok()?;
    (begin <= end && end <= room).then_some((Addr(begin), Addr(end)))
}

fn distinct(ranks: impl IntoIterator<Item = u32>) -> Vec<u32> {
    ranks.into_iter().collect::<BTreeSet<u32>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::objects::class_of_table;
    use super::*;
    use crate::symbols::demangle;

    #[test]
    fn classes_are_told_by_their_tables() {
        let class = |name: &str| class_of_table(&demangle(name)).map(str::to_owned);
        assert_eq!(class("_ZTVN4c10d4WorkE").as_deref(), Some("c10d::Work"));
        assert_eq!(class("_ZTVN4gloo9transport3tcp13UnboundBufferE").as_deref(), Some(BUFFER));
        assert_eq!(class("_ZTVN4gloo9transport3tcp7ContextE").as_deref(), Some(CONTEXT));
        let hidden = class("_ZTVN4c10d12_GLOBAL__N_118AsyncBroadcastWorkE");
        assert!(hidden.is_some_and(|class| is_work(&class)));
        assert_eq!(class("_ZN4c10d4Work4waitEv"), None);
    }
}
