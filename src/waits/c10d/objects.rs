//! Objects of C++ in memory, by the names of their classes.
//!
//! In: a process. Out: the class of an object, which its first word leads to, and the words of calls that may point to
//! objects. Other modules know the members of a class.

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

use crate::image::{Addr, MemoryExt};
use crate::limits::c10d::MOST_CANDIDATES;
use crate::waits::thread::{Process, ThreadView};

/// The class of the object at `address`, by its table of functions.
pub(super) fn class(process: &Process<'_>, address: Addr) -> Option<String> {
    let table = Addr(process.memory().u64(address).ok()?);
    // The first function stands behind two words, which belong to the table.
    let mapping = process.context.image.mapping(table).filter(|mapping| mapping.is_file())?;
    mapping.path.as_ref()?;
    let symbol = process.context.symbols.object(Addr(table.0.checked_sub(16)?))?;
    class_of_table(&symbol.name).map(str::to_owned)
}

/// The class in the readable name of its table of functions, as cpp_demangle writes it.
pub(super) fn class_of_table(name: &str) -> Option<&str> {
    name.strip_prefix("{vtable(")?.strip_suffix(")}")
}

/// The words that may point to objects, from the frames of a call and of its callees.
pub(super) fn candidates<'t>(
    process: &'t Process<'_>,
    thread: &'t ThreadView<'_>,
    native: usize,
) -> Option<impl Iterator<Item = Addr> + 't> {
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let end = frames.get(native).and_then(|frame| frame.cfa)?;
    let registers = thread.registers(native.saturating_add(1)).into_iter().map(|(_, _, value)| value);
    let inside = thread.words(process).iter().filter(|(at, _)| *at < end).map(|(_, word)| *word);
    let words: BTreeSet<u64> = inside.chain(registers).collect();
    let is_object = |word: &u64| {
        let mapping = process.context.image.mapping(Addr(*word));
        word.is_multiple_of(8) && mapping.is_some_and(|mapping| mapping.write && !mapping.is_file())
    };
    Some(words.into_iter().filter(is_object).take(MOST_CANDIDATES).map(Addr))
}
