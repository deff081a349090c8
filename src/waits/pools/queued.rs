//! Whether work that waits in the queue of a worker's pool leads to the thing that the worker itself waits for.
//!
//! In: a worker inside a piece of work, the frame of its loop, and the thing. Out: how the loop leads there, through blocks of the
//! heap. A loop runs piece after piece, so that it knows the pool and its queue: what is reached from there is known to work that
//! only workers of this pool do. The layout of no library is known here. The heap is glibc's, whose blocks have their sizes; with
//! any other allocator nothing is found.

use std::collections::{HashSet, VecDeque};

use crate::image::{Addr, MemoryExt};
use crate::limits::holders::{LOOP_BYTES, QUEUE_BLOCKS, QUEUE_BYTES};
use crate::waits::thread::{Process, ThreadView};

/// In front of each block stands its size, whose low three bits are flags (glibc, malloc/malloc.c: `struct malloc_chunk`,
/// `mchunk_size`, `SIZE_BITS`). The size counts that word.
const SIZE_WORD: u64 = 8;
const FLAGS: u64 = 0b111;
/// Blocks begin at multiples of this, and are no smaller than two of it (`MALLOC_ALIGNMENT`, `MINSIZE`).
const ALIGNMENT: u64 = 16;
/// An object of std::make_shared stands behind two words in its block (libstdc++, `_Sp_counted_ptr_inplace`).
const BEHIND_COUNTS: u64 = 16;
/// From the start of an object to its part that threads wait at: the condition variable of Arrow's future is 112 bytes within it.
const WITHIN: u64 = 128;

/// How the loop of a worker leads to the thing at `thing`; `native` is the loop's frame.
pub(super) fn way(process: &Process<'_>, thread: &ThreadView<'_>, native: usize, thing: Addr) -> Option<String> {
    let mut ahead: VecDeque<(Addr, usize)> = at_hand(process, thread, native)?.into_iter().map(|at| (at, 1)).collect();
    let mut seen: HashSet<Addr> = ahead.iter().map(|(at, _)| *at).collect();
    let mut left = QUEUE_BYTES;
    while let Some((at, steps)) = ahead.pop_front() {
        let Some(size) = block(process, at).filter(|size| *size <= left) else { continue };
        left -= size;
        let Ok(bytes) = process.memory().bytes(at, size as usize) else { continue };
        let words = bytes.chunks_exact(8).filter_map(|word| Some(Addr(u64::from_le_bytes(word.try_into().ok()?))));
        for word in words {
            if thing.within(word, WITHIN) && leads_into(process, word, thing) {
                let frame = thread.describe();
                return Some(format!(
                    "the loop of {frame} leads to it over {steps} blocks of the heap, the last at {at}"
                ));
            }
            if word.0.is_multiple_of(ALIGNMENT) && seen.len() < QUEUE_BLOCKS && !word.is_null() && seen.insert(word) {
                ahead.push_back((word, steps + 1));
            }
        }
    }
    None
}

/// Whether a pointer is to the thing, or to the object that it is part of.
fn leads_into(process: &Process<'_>, word: Addr, thing: Addr) -> bool {
    word == thing || block(process, word).is_some_and(|size| thing.within(word, size))
}

/// The addresses that the frames of a loop have at hand, from its own outwards.
fn at_hand(process: &Process<'_>, thread: &ThreadView<'_>, native: usize) -> Option<Vec<Addr>> {
    let frames = thread.thread?.native.frames.get(native..)?;
    let (first, last) = (frames.first()?, frames.iter().rev().find_map(|frame| frame.cfa)?);
    let length = last.0.checked_sub(first.sp.0)?.min(LOOP_BYTES);
    let bytes = process.memory().bytes(first.sp, length as usize).ok()?;
    let words = bytes.chunks_exact(8).filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
    let kept = process.architecture().callee_saved().iter().filter_map(|register| first.registers.get(*register));
    let is_aligned = |at: &Addr| at.0.is_multiple_of(ALIGNMENT) && !thread.on_own_stack(*at);
    Some(words.chain(kept).map(Addr).filter(is_aligned).collect())
}

/// The bytes from `at` to the end of its block, if an object begins there.
fn block(process: &Process<'_>, at: Addr) -> Option<u64> {
    let starts = |at: Addr| {
        process.context.image.mapping(at).filter(|mapping| mapping.write && mapping.inode == 0)?;
        let word = process.memory().u64(Addr(at.0.checked_sub(SIZE_WORD)?)).ok()?;
        let size = word & !FLAGS;
        let is_plausible = size.is_multiple_of(ALIGNMENT) && (2 * ALIGNMENT..=QUEUE_BYTES).contains(&size);
        is_plausible.then(|| size - SIZE_WORD)
    };
    starts(at).or_else(|| starts(Addr(at.0.checked_sub(BEHIND_COUNTS)?))?.checked_sub(BEHIND_COUNTS))
}
