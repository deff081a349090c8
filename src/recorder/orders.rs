//! The file that the recorder writes for each process: which locks were taken while which were held.
//!
//! In: bytes of a file as `preload/file.rs`, `preload/orders.rs` and `preload/loaded.rs` write it, versions 1 and 2:
//! the second counts what found no room in the table, and has all code that was loaded when the process ended. Out:
//! [`Orders`]. A process may end while it writes: a record that was begun and not finished is passed over, and so are
//! bytes that are none. It judges nothing.

// All of its input is foreign.
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

use super::table::{LockKind, Mode, PythonFrame, python_frames};
use crate::image::Addr;
use crate::limits;
use crate::limits::recorder::{MOST_HELD, MOST_RECORDS};

const MAGIC: [u8; 16] = *b"LOCKSCOPE-ORD-1\0";
const VERSIONS: [u32; 2] = [2, 1];
const WITH_COUNTS: u32 = 2;
/// Where what stands in the head.
const PROCESS: usize = 20;
const END: usize = 24;
const LOST: usize = 40;
const NOT_HELD: usize = 64;
const PLACELESS: usize = 72;
const HAS_ENDED: usize = 80;
const RECORDS: usize = 128;
/// A record begins with it.
const RECORD: u64 = 0x4c4b;

/// One lock, from when it was made to when it ended: another may come to lie at its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LockId {
    /// Where it lies.
    pub(crate) address: Addr,
    /// How often one had been made or ended there.
    pub(crate) generation: u32,
}

/// A lock that was taken, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Which.
    pub(crate) lock: LockId,
    /// Its kind.
    pub(crate) kind: LockKind,
    /// How it is held.
    pub(crate) mode: Mode,
    /// Where the call returned to; null for a method of Python.
    pub(crate) at: Addr,
    /// Its frames of Python, by number, or 0.
    pub(crate) site: u32,
}

/// A thread took a lock by waiting for it, while it held others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The thread's number.
    pub(crate) thread: u32,
    /// How many threads it had made or joined before.
    pub(crate) segment: u32,
    /// How many parts of the run had ended before. Nothing is known about the order of two parts' threads.
    pub(crate) part: u32,
    /// The lock that it took.
    pub(crate) wanted: Taken,
    /// The locks that it held, the oldest first.
    pub(crate) held: Vec<Taken>,
}

/// A thread, as the kernel knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ThreadName {
    /// Its id.
    pub(crate) tid: i32,
    /// Its name in Python, or else the kernel's name for it.
    pub(crate) name: String,
}

/// A thread waits to be woken through something, or wakes who does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WakeUp {
    /// The thread's number.
    pub(crate) thread: u32,
    /// How many threads it had made or joined before.
    pub(crate) segment: u32,
    /// How many parts of the run had ended before.
    pub(crate) part: u32,
    /// The condition variable, or the lock of Python by which one waiter is woken; and where the thread took the lock that guards it, or
    /// woke others.
    pub(crate) taken: Taken,
}

/// Code that a file was mapped for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MappedCode {
    /// First address.
    pub(crate) start: Addr,
    /// One past the last.
    pub(crate) end: Addr,
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// The file.
    pub(crate) path: String,
}

/// The data that one process wrote.
#[derive(Debug, Clone, Default)]
pub(crate) struct Orders {
    /// Its id.
    pub(crate) process: i32,
    /// Its program.
    pub(crate) program: Option<String>,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// The locks that were taken while others were held.
    pub(crate) dependencies: Vec<Dependency>,
    /// Its threads, by number.
    pub(crate) threads: BTreeMap<u32, ThreadName>,
    /// Frames of Python.
    pub(crate) sites: BTreeMap<u32, Vec<PythonFrame>>,
    /// Code that took locks.
    pub(crate) code: Vec<MappedCode>,
    /// The thread that made a thread, and in which segment.
    pub(crate) made: BTreeMap<u32, (u32, u32)>,
    /// A thread saw, in a segment, the end of another.
    pub(crate) joined: Vec<(u32, u32, u32)>,
    /// Waits to be woken.
    pub(crate) waits: Vec<WakeUp>,
    /// Wake-ups.
    pub(crate) wake_ups: Vec<WakeUp>,
    /// How many parts of the run have ended.
    pub(crate) parts: u32,
    /// Locks that a thread released without having taken them: they are signals, not locks.
    pub(crate) signals: BTreeSet<LockId>,
    /// How many records found no room.
    pub(crate) lost: u64,
    /// How many times a lock was taken that found no room in the table, so that no order has it.
    pub(crate) not_held: u64,
    /// How many places in Python are not known, for their texts found no room.
    pub(crate) placeless: u64,
    /// Whether all code that the process had at its end is among [`code`](Orders::code); none where its recorder did
    /// not say.
    pub(crate) has_all_code: Option<bool>,
}

/// Why a file says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OrdersError {
    /// Its process could not write.
    #[error(
        "there was no room for it on the disk, or files may not grow so large (ulimit -f): what its process took was not recorded"
    )]
    Empty,
    /// Something else.
    #[error("it is no file of lockscope's recorder")]
    Other,
    /// Made by another lockscope.
    #[error("it was written by a recorder of another version: read it with the lockscope that recorded it")]
    Version,
}

impl Orders {
    /// Whether a file of a recorder begins so.
    pub(crate) fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Read a file.
    pub(crate) fn read(bytes: &[u8]) -> Result<Orders, OrdersError> {
        // The file gets its room before its first word is written.
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(OrdersError::Empty);
        }
        if !Orders::is_one(bytes) {
            return Err(OrdersError::Other);
        }
        let version = number(bytes, 16).filter(|version| VERSIONS.contains(version)).ok_or(OrdersError::Version)?;
        let counted = |at: usize| word(bytes, at).filter(|_| version >= WITH_COUNTS);
        let mut orders = Orders {
            process: number(bytes, PROCESS).and_then(|id| i32::try_from(id).ok()).unwrap_or_default(),
            lost: word(bytes, LOST).unwrap_or_default(),
            not_held: counted(NOT_HELD).unwrap_or_default(),
            placeless: counted(PLACELESS).unwrap_or_default(),
            has_all_code: counted(HAS_ENDED).map(|word| word & 1 == 1),
            ..Orders::default()
        };
        let end = word(bytes, END).and_then(|end| usize::try_from(end).ok()).unwrap_or(0).min(bytes.len());
        let mut at = RECORDS;
        let mut count = 0;
        while at < end {
            let Some(head) = word(bytes, at) else { break };
            let size = usize::try_from(head & 0xffff).unwrap_or(0);
            // Room that a killed process reserved and never filled is zero.
            if head >> 48 != RECORD || size == 0 {
                at += 8;
                continue;
            }
            if count == MOST_RECORDS {
                limits::met(MOST_RECORDS, format!("the records of process {}", orders.process), "records");
                break;
            }
            count += 1;
            let record = Record { bytes: bytes.get(at + 8..at + size * 8).unwrap_or_default() };
            // One that is broken is passed over.
            let _ = orders.add(u8::try_from(head >> 40 & 0xff).unwrap_or(0), &record);
            at += size * 8;
        }
        Ok(orders)
    }

    fn add(&mut self, tag: u8, record: &Record<'_>) -> Option<()> {
        let (low, high) = record.pair(0)?;
        match tag {
            b'D' => {
                let mut locks = (0..record.word(1)?.min(MOST_HELD + 1)).map_while(|one| record.taken(one));
                let wanted = locks.next()?;
                let held = locks.collect();
                self.dependencies.push(Dependency { thread: low, segment: high, part: self.parts, wanted, held });
            }
            b'P' => drop(self.sites.insert(low, python_frames(&record.text(2)?))),
            b'M' => self.code.push(MappedCode {
                start: Addr(record.word(0)?),
                end: Addr(record.word(1)?),
                offset: record.word(2)?,
                path: record.text(4)?,
            }),
            b'N' => {
                let name = record.text(2)?.trim_end_matches('\0').to_owned();
                let thread = self.threads.entry(low).or_default();
                thread.tid = i32::try_from(high).ok()?;
                if thread.name.is_empty() {
                    thread.name = name;
                }
            }
            b'T' => {
                let name = record.text(2)?;
                if !name.is_empty() {
                    self.threads.entry(low).or_default().name = name;
                }
            }
            b'C' => drop(self.made.insert(record.pair(1)?.0, (low, high))),
            b'J' => self.joined.push((low, high, record.pair(1)?.0)),
            b'W' | b'V' => {
                let (address, at, site) = (Addr(record.word(1)?), Addr(record.word(2)?), record.pair(3)?.0);
                let kind = if site == 0 { LockKind::Mutex } else { LockKind::PythonLock };
                let taken = Taken { lock: LockId { address, generation: 0 }, kind, mode: Mode::Alone, at, site };
                let event = WakeUp { thread: low, segment: high, part: self.parts, taken };
                let to = if tag == b'W' { &mut self.waits } else { &mut self.wake_ups };
                to.push(event);
            }
            b'B' => self.parts += 1,
            b'S' => {
                let lock = LockId { address: Addr(record.word(0)?), generation: record.pair(1)?.0 };
                self.signals.insert(lock);
            }
            b'E' => self.program = record.text(1),
            b'A' => {
                let line = record.text(1)?;
                self.arguments = line.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
            }
            _ => {}
        }
        Some(())
    }
}

/// The words of a record behind the first.
struct Record<'b> {
    bytes: &'b [u8],
}

impl Record<'_> {
    fn word(&self, position: usize) -> Option<u64> {
        word(self.bytes, position * 8)
    }

    /// The lower and the upper half of a word.
    fn pair(&self, position: usize) -> Option<(u32, u32)> {
        Some((number(self.bytes, position * 8)?, number(self.bytes, position * 8 + 4)?))
    }

    /// The text behind the word that has its length.
    fn text(&self, begin: usize) -> Option<String> {
        let length = usize::try_from(self.word(begin.checked_sub(1)?)?).ok()?;
        let text = self.bytes.get(begin * 8..)?.get(..length)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }

    /// One lock of a dependency.
    fn taken(&self, position: u64) -> Option<Taken> {
        let begin = 2 + usize::try_from(position).ok()? * 4;
        let (generation, how) = self.pair(begin + 1)?;
        let [kind, mode, ..] = how.to_le_bytes();
        Some(Taken {
            lock: LockId { address: Addr(self.word(begin)?), generation },
            kind: LockKind::of(kind)?,
            mode: if mode == 1 { Mode::Reading } else { Mode::Alone },
            at: Addr(self.word(begin + 2)?),
            site: self.pair(begin + 3)?.0,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.get(..8)?.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.get(..4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with these records: tag, words.
    fn file(records: &[(u8, Vec<u64>)]) -> Vec<u8> {
        let mut bytes = vec![0; RECORDS];
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..20].copy_from_slice(&WITH_COUNTS.to_le_bytes());
        bytes[PROCESS..PROCESS + 4].copy_from_slice(&7u32.to_le_bytes());
        bytes[LOST..LOST + 8].copy_from_slice(&3u64.to_le_bytes());
        for (tag, words) in records {
            let head = RECORD << 48 | u64::from(*tag) << 40 | (words.len() as u64 + 1);
            bytes.extend([head].iter().chain(words).flat_map(|word| word.to_le_bytes()));
        }
        let end = (bytes.len() as u64).to_le_bytes();
        bytes[END..END + 8].copy_from_slice(&end);
        bytes
    }

    fn dependency() -> (u8, Vec<u64>) {
        let mutex = u64::from(b'M') << 32;
        (b'D', vec![5 | 2 << 32, 2, 0x1000, mutex | 4, 0x400, 0, 0x2000, u64::from(b'R') << 32 | 1 << 40, 0, 9])
    }

    #[test]
    fn records_are_read_and_unfinished_ones_passed_over() {
        let name = u64::from_le_bytes(*b"payer\0\0\0");
        let records = [
            (b'-', dependency().1),
            dependency(),
            (b'N', vec![5 | 12 << 32, 16, name, 0]),
            (b'S', vec![0x1000, 4]),
            (b'C', vec![1 | 6 << 32, 5]),
            (b'J', vec![1 | 7 << 32, 5]),
        ];
        let orders = Orders::read(&file(&records)).expect("a file");
        let [one] = orders.dependencies.as_slice() else { panic!("{orders:?}") };
        assert_eq!((one.thread, one.segment, one.wanted.kind, one.wanted.at), (5, 2, LockKind::Mutex, Addr(0x400)));
        assert_eq!(one.wanted.lock, LockId { address: Addr(0x1000), generation: 4 });
        assert_eq!(one.held.iter().map(|held| (held.mode, held.site)).collect::<Vec<_>>(), [(Mode::Reading, 9)]);
        assert_eq!(orders.threads[&5], ThreadName { tid: 12, name: "payer".into() });
        assert_eq!((orders.process, orders.lost, orders.signals.len()), (7, 3, 1));
        assert_eq!((orders.not_held, orders.placeless, orders.has_all_code), (0, 0, Some(false)));
        assert_eq!((orders.made[&5], orders.joined.as_slice()), ((1, 6), [(1, 7, 5)].as_slice()));
    }

    #[test]
    fn what_was_not_seen_is_counted_where_the_recorder_counts() {
        let mut bytes = file(&[dependency()]);
        bytes[NOT_HELD..NOT_HELD + 8].copy_from_slice(&5u64.to_le_bytes());
        bytes[PLACELESS..PLACELESS + 8].copy_from_slice(&2u64.to_le_bytes());
        bytes[HAS_ENDED..HAS_ENDED + 4].copy_from_slice(&1u32.to_le_bytes());
        let counts = |bytes: &[u8]| {
            let orders = Orders::read(bytes).expect("a file");
            (orders.dependencies.len(), orders.not_held, orders.placeless, orders.has_all_code)
        };
        assert_eq!(counts(&bytes), (1, 5, 2, Some(true)));
        // The first version had nothing there.
        bytes[16..20].copy_from_slice(&1u32.to_le_bytes());
        assert_eq!(counts(&bytes), (1, 0, 0, None));
        bytes[16..20].copy_from_slice(&3u32.to_le_bytes());
        assert_eq!(Orders::read(&bytes).err(), Some(OrdersError::Version));
    }

    #[test]
    fn no_file_makes_it_panic() {
        let whole =
            file(&[dependency(), (b'P', vec![1, 9, 7, 7]), (b'M', vec![1, 2, 3, 500, 0]), (b'E', vec![u64::MAX])]);
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                let _ = Orders::read(&bytes);
            }
            let _ = Orders::read(&whole[..at]);
        }
        assert_eq!(Orders::read(b"other").err(), Some(OrdersError::Other));
    }
}
