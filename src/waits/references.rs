//! Addresses that a thread has at hand: the register or stack word, its frame, and its value as evidence.
//!
//! In: a thread and addresses of objects. Out: [`Reference`]s. Whether the thread holds what it refers to is not said here.

use std::collections::HashMap;

use super::blocked_call::FUTEX_ARGUMENTS;
use super::thread::{Process, ThreadView};
use crate::arch::system_calls::FUTEX;
use crate::image::{Addr, Register};
use crate::limits::waits::SEARCHED_FRAMES;

/// The kind of location where an address was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReferenceKind {
    /// A register that functions keep for their callers: it has its value through the calls further in.
    CalleeSaved,
    /// An argument of the system call that the thread sleeps in, from 0.
    Argument(usize),
    /// A word of a frame.
    StackSlot,
    /// Another register of the innermost frame. Any call overwrites it, so that it may be left over from one that is over
    /// (measured: the register of a sixth argument had, in a futex call without one, a mutex that the thread once locked).
    Volatile,
}

/// A place where a thread has an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reference {
    /// "the register so and so = 0x7f.. in frame 3", "the stack word at 0x7f.. in frame 5 is 0x7f..".
    pub place: String,
    /// Position of the native frame, where it lies in one that is known.
    pub native: Option<usize>,
    /// The kind of location.
    pub kind: ReferenceKind,
}

impl Reference {
    /// Whether the thread still uses the address.
    pub(crate) fn is_live(&self) -> bool {
        self.kind != ReferenceKind::Volatile
    }
}

/// Objects whose addresses are searched in one pass.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// Start and size in bytes, in order.
    sorted: Vec<(Addr, u64)>,
    largest: u64,
}

impl Objects {
    /// From these starts and sizes in bytes.
    pub(crate) fn new(objects: impl IntoIterator<Item = (Addr, u64)>) -> Objects {
        let mut sorted: Vec<(Addr, u64)> = objects.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup();
        let largest = sorted.iter().map(|(_, size)| *size).max().unwrap_or_default();
        Objects { sorted, largest }
    }

    /// Those that the address `value` lies in.
    fn at(&self, value: u64) -> impl Iterator<Item = (Addr, u64)> {
        let end = self.sorted.partition_point(|(start, _)| start.0 <= value);
        let near = self.sorted.iter().take(end).rev().take_while(move |(start, _)| value - start.0 < self.largest);
        near.copied().filter(move |(start, size)| Addr(value).within(*start, *size))
    }
}

impl ThreadView<'_> {
    /// Where this thread has an address in `[start, start + size)`: registers from the innermost frame on, then the stack.
    pub(crate) fn references<'r>(
        &'r self,
        process: &'r Process<'_>,
        start: Addr,
        size: u64,
    ) -> impl Iterator<Item = Reference> + 'r {
        let registers = self.registers(SEARCHED_FRAMES);
        let hits: Vec<Reference> = registers
            .iter()
            .filter(|(_, _, value)| Addr(*value).within(start, size))
            .map(|&(native, register, value)| self.in_register(process, &registers, native, register, value))
            .collect();
        let words = std::iter::once_with(move || self.words(process)).flatten();
        let slots = words.filter(move |(_, value)| Addr(*value).within(start, size));
        hits.into_iter().chain(slots.map(|&(at, value)| self.in_slot(at, value)))
    }

    /// The first live reference to an address in `[start, start + size)`.
    pub(crate) fn find_reference(&self, process: &Process<'_>, start: Addr, size: u64) -> Option<Reference> {
        self.references(process, start, size).find(Reference::is_live)
    }

    /// The first live reference to each of several objects, by one pass over registers and stack.
    pub(crate) fn first_references(&self, process: &Process<'_>, objects: &Objects) -> HashMap<(Addr, u64), Reference> {
        let mut first = HashMap::new();
        if objects.sorted.is_empty() {
            return first;
        }
        let registers = self.registers(SEARCHED_FRAMES);
        for &(native, register, value) in &registers {
            for object in objects.at(value) {
                if !first.contains_key(&object) {
                    let found = self.in_register(process, &registers, native, register, value);
                    first.extend(found.is_live().then_some((object, found)));
                }
            }
        }
        self.with_words(process, |words| {
            for &(at, value) in words {
                for object in objects.at(value) {
                    first.entry(object).or_insert_with(|| self.in_slot(at, value));
                }
            }
        });
        first
    }

    /// A register of a frame; one that is kept over calls belongs to the outermost frame that has the value in it.
    fn in_register(
        &self,
        process: &Process<'_>,
        registers: &[(usize, Register, u64)],
        native: usize,
        register: Register,
        value: u64,
    ) -> Reference {
        let kind = self.kind_of(process, native, register, value);
        let keeps = |frame: usize| registers.iter().any(|&(n, r, v)| n == frame && r == register && v == value);
        let native = match kind {
            ReferenceKind::CalleeSaved => {
                (native..SEARCHED_FRAMES).take_while(|&frame| keeps(frame)).last().unwrap_or(native)
            }
            _ => native,
        };
        let place = format!("{} = {value:#x} in frame {native}", process.architecture().register_name(register));
        Reference { place, native: Some(native), kind }
    }

    /// The value of a register of a frame as evidence. In outer frames only registers that calls preserve are known.
    fn kind_of(&self, process: &Process<'_>, native: usize, register: Register, value: u64) -> ReferenceKind {
        let architecture = process.architecture();
        if architecture.callee_saved().contains(&register) {
            return ReferenceKind::CalleeSaved;
        }
        let futex = self.call.filter(|call| native == 0 && call.row(architecture) == Some(&FUTEX));
        let argument =
            futex.and_then(|call| call.arguments.iter().take(FUTEX_ARGUMENTS).position(|known| *known == value));
        argument.map_or(ReferenceKind::Volatile, ReferenceKind::Argument)
    }

    fn in_slot(&self, at: Addr, value: u64) -> Reference {
        let native = self.native_frame(at);
        let frame = native.map(|native| format!(" in frame {native}")).unwrap_or_default();
        let place = format!("the stack word at {at}{frame} is {value:#x}");
        Reference { place, native, kind: ReferenceKind::StackSlot }
    }
}
