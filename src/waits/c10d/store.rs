//! The key of a store that a thread waits for.
//!
//! In: a thread inside of a call of c10d's stores. Out: the keys. The calls have them as texts of C++ on their stacks,
//! alone or in a vector. libstdc++'s `std::string` has a pointer to the letters and their count; short texts stand in
//! the object. The store adds a prefix and a slash in front of a key (TCPStore.cpp, `keyPrefix_`). A store that wraps
//! other stores has theirs in front.

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

use super::gloo::vector;
use crate::image::{Addr, Memory, MemoryExt};
use crate::limits::c10d::{LONGEST_KEY, MOST_KEYS};
use crate::waits::thread::{Process, ThreadView};

/// Bytes of a `std::string`, and where letters stand in a short one.
const TEXT: u64 = 32;
const SHORT: u64 = 16;

/// The keys that the call in native frame `native` waits for; none where they are not found.
pub(super) fn keys(process: &Process<'_>, thread: &ThreadView<'_>, native: usize) -> Vec<String> {
    let memory = process.memory();
    let frames = thread.thread.map(|thread| thread.native.frames.as_slice()).unwrap_or_default();
    let calls = frames.get(..=native.saturating_add(1)).unwrap_or(frames);
    let spans: Vec<(Addr, Addr)> = calls.iter().filter_map(|frame| Some((frame.sp, frame.cfa?))).collect();
    let words = |span: &(Addr, Addr)| {
        let (begin, end) = *span;
        thread.words(process).iter().filter(move |(at, _)| begin <= *at && *at < end).map(|(at, _)| *at)
    };
    let lists = spans.iter().flat_map(words).filter_map(|at| texts(memory, at));
    let is_whole = |keys: &Vec<String>| keys.iter().all(|key| key.starts_with('/'));
    let all: Vec<Vec<String>> = lists.collect();
    // With what the store itself puts in front it is the whole key.
    let mut best = all.iter().find(|keys| is_whole(keys)).or(all.first()).cloned().unwrap_or_default();
    if best.is_empty() {
        let single = spans.iter().flat_map(words).filter_map(|at| text(memory, at));
        best = single.into_iter().find(|key| key.starts_with('/')).into_iter().collect();
    }
    best.iter().map(|key| key.trim_start_matches('/').to_owned()).filter(|key| !key.is_empty()).collect()
}

/// A vector of texts.
fn texts(memory: &dyn Memory, at: Addr) -> Option<Vec<String>> {
    let (begin, end) = vector(memory, at)?;
    let length = end - begin;
    if begin.is_null() || length == 0 || !length.is_multiple_of(TEXT) || length / TEXT > MOST_KEYS {
        return None;
    }
    (0..length / TEXT).map(|index| text(memory, begin + index * TEXT)).collect()
}

/// The `std::string` at `at`, if it is one that can be printed.
pub(super) fn text(memory: &dyn Memory, at: Addr) -> Option<String> {
    let letters = Addr(memory.u64(at).ok()?);
    let length = memory.u64(at + 8).ok()?;
    let room = memory.u64(at + SHORT).ok()?;
    let is_short = letters == at + SHORT;
    if length == 0 || length > LONGEST_KEY || (is_short && length >= SHORT) || (!is_short && room < length) {
        return None;
    }
    let bytes = memory.bytes(letters, usize::try_from(length).ok()?).ok()?;
    String::from_utf8(bytes).ok().filter(|text| !text.chars().any(char::is_control))
}
