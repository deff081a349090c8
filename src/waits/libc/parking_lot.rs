//! Locks of the crate parking_lot: for which of them a thread is parked.
//!
//! In: the futex word by which a thread is parked. Out: the address of the lock. It says nothing of who has it: these locks record no
//! owner.

use super::Case;
use crate::image::{Addr, MemoryExt};

/// `ThreadData` of parking_lot_core 0.8 and 0.9: the key, which is the lock's address, two words of the queue and two tokens stand
/// before the parker, in the order that the compiler likes [live: polars 1.40].
const WORDS_BEFORE: u64 = 6;
/// raw_mutex.rs: LOCKED_BIT and PARKED_BIT, in a byte.
const TAKEN_AND_AWAITED: u8 = 3;
/// raw_rwlock.rs: PARKED_BIT, and WRITER_PARKED_BIT of a writer that has the lock for itself and waits for readers to leave, by the
/// key one further. Above these stand who has it: UPGRADABLE_BIT, WRITER_BIT, and the count of readers.
const AWAITED: u64 = 1;
const AWAITED_BY_WRITER: u64 = 2;
/// No lock has enough readers for a state of this value: it is an address.
const ADDRESS: u64 = 1 << 32;

/// The kinds of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParkingLot {
    Mutex,
    RwLock,
}

impl ParkingLot {
    /// Its name for people.
    pub(super) fn noun(self) -> &'static str {
        match self {
            ParkingLot::Mutex => "parking_lot Mutex",
            ParkingLot::RwLock => "parking_lot RwLock",
        }
    }
}

/// The lock for which the thread with the parker at `word` waits, where one word alone can be its address.
pub(super) fn lock(case: &Case<'_, '_>, kind: ParkingLot, word: Addr) -> Option<Addr> {
    let memory = case.process.memory();
    let keys = (1..=WORDS_BEFORE).filter_map(|count| memory.pointer(word - 8 * count).ok());
    let is_data = |key: &Addr| case.process.context.image.mapping(*key).is_some_and(|mapping| mapping.write);
    let mut locks: Vec<Addr> = keys
        .filter(is_data)
        .filter_map(|key| match kind {
            ParkingLot::Mutex => memory.u8(key).ok().filter(|state| *state == TAKEN_AND_AWAITED).map(|_| key),
            ParkingLot::RwLock => {
                let (lock, awaited) = if key.0 & 1 == 1 { (key - 1, AWAITED_BY_WRITER) } else { (key, AWAITED) };
                let state = memory.u64(lock).ok().filter(|_| lock.0 & 7 == 0)?;
                let is_taken = state >> 2 != 0 && state < ADDRESS;
                (is_taken && state & awaited != 0).then_some(lock)
            }
        })
        .collect();
    locks.dedup();
    if let [lock] = locks.as_slice() { Some(*lock) } else { None }
}
