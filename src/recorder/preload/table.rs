//! The table: where it is, what stands in it.
//!
//! In: nothing. Out: [`Head`], [`Row`], [`Held`], which `src/recorder/table.rs` of lockscope reads by the same offsets,
//! and the memory that holds them: one private anonymous mapping. Fork copies it, it has no descriptor, and it is in
//! each core. [`BEACON`] lies in the data of this library, by which it is found.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::arch::{self, MMAP, system_call};
use crate::orders::Start;

/// The first bytes of the beacon and of the table.
pub(crate) const MAGIC: [u8; 16] = *b"LOCKSCOPE-REC-1\0";
/// Locks that one thread has at a time.
pub(crate) const MOST_HELD: usize = 64;
/// Threads at a time.
pub(crate) const MOST_ROWS: usize = 4096;
/// Entries of the tables that are found by an address: generations, semaphores that are signals.
pub(crate) const HASHED: usize = 1 << 20;
/// Hashes of the records in the file of orders. The first part of them suffices for small processes.
pub(crate) const SEEN: usize = 1 << 17;
pub(crate) const SEEN_FIRST: usize = 1 << 13;
/// Threads that are about to begin, and those that are known by their `pthread_t`.
pub(crate) const STARTING: usize = 256;
pub(crate) const THREADS: usize = 4096;

/// Where the table is: what a reader looks for in the writable data of this library.
#[repr(C, align(64))]
pub(crate) struct Beacon {
    magic: [u8; 16],
    pub(crate) table: AtomicPtr<Table>,
}

/// Used by readers outside of the process: it must stay in one piece, in the part of the file that is mapped for
/// writing.
#[used]
pub(crate) static BEACON: Beacon = Beacon { magic: MAGIC, table: AtomicPtr::new(core::ptr::null_mut()) };

/// The description of the table, in the first of its pages.
#[repr(C)]
pub(crate) struct Head {
    pub(crate) magic: [u8; 16],
    pub(crate) version: u32,
    pub(crate) process: AtomicU32,
    pub(crate) row_size: u32,
    pub(crate) held_size: u32,
    pub(crate) rows_at: u32,
    pub(crate) held_at: u32,
    pub(crate) rows: AtomicU32,
    pub(crate) most_held: u32,
    /// Entries that found no room.
    pub(crate) lost: AtomicU64,
    /// Locks that a thread released without having taken them.
    pub(crate) signals: AtomicU64,
    /// The difference between nanoseconds since 1970 and a time of the table.
    pub(crate) epoch: i64,
    pub(crate) generations: u64,
    pub(crate) hashed: u64,
    pub(crate) sites: u64,
    pub(crate) site_count: u64,
    pub(crate) threads: AtomicU32,
    /// Calls into CUDA's driver by row and the size of one, the names of its functions and the size of one.
    pub(crate) calls: u64,
    pub(crate) call_size: u64,
    pub(crate) functions: u64,
    pub(crate) function_size: u64,
    pub(crate) function_count: u64,
}

/// One thread.
#[repr(C, align(64))]
pub(crate) struct Row {
    pub(crate) tid: AtomicU32,
    /// Zero before it is used, then [`LIVES`], [`ENDED`] or [`TAKEN`].
    pub(crate) state: AtomicU32,
    pub(crate) pthread: AtomicU64,
    /// Its number in the process: threads are counted from 1.
    pub(crate) number: AtomicU32,
    pub(crate) held_count: AtomicU32,
    /// How often it has made or joined a thread, and the number of the file that has its name.
    pub(crate) segment: AtomicU32,
    pub(crate) told: AtomicU32,
    /// The number of the file that has its name in Python, and how often that was looked for.
    pub(crate) python_told: AtomicU32,
    pub(crate) python_asked: AtomicU32,
    pub(crate) held: [Held; MOST_HELD],
}

impl Row {
    /// Its entries that are in use, some of which may be of locks that were given back or have ended.
    pub(crate) fn entries(&self) -> &[Held] {
        self.held.get(..(self.held_count.load(Ordering::Relaxed) as usize).min(MOST_HELD)).unwrap_or_default()
    }
}

pub(crate) const LIVES: u32 = 1;
pub(crate) const ENDED: u32 = 2;
pub(crate) const TAKEN: u32 = 3;

/// One lock that a thread has.
#[repr(C)]
pub(crate) struct Held {
    /// Its address; 0 while the entry is written or after it was given back out of turn.
    pub(crate) lock: AtomicU64,
    pub(crate) generation: AtomicU32,
    pub(crate) kind: u8,
    pub(crate) mode: u8,
    pub(crate) count: u16,
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub(crate) since: u64,
    /// Where the call that took it returned to, and the caller's stack pointer.
    pub(crate) at: u64,
    pub(crate) stack: u64,
    /// Python's frames at that time: a number of `sites` and one more, or 0.
    pub(crate) site: u32,
    /// The number of the file that has it in a record.
    pub(crate) is_reportable: AtomicU32,
    /// A hash of the lock and its place.
    pub(crate) mark: u64,
}

/// The last call into CUDA's driver of a row's thread.
#[repr(C, align(64))]
pub(crate) struct DriverCall {
    /// The number of the function's name and one more; 0 before the first.
    pub(crate) function: AtomicU32,
    /// In how many calls the thread is, one within the other.
    pub(crate) depth: AtomicU32,
    pub(crate) arguments: [AtomicU64; 4],
    /// CLOCK_MONOTONIC, in nanoseconds, when it began.
    pub(crate) since: AtomicU64,
    pub(crate) calls: AtomicU64,
    /// The result of the last call that has returned.
    pub(crate) result: AtomicU32,
    /// The last error, and the call that answered it first.
    pub(crate) error: AtomicU32,
    pub(crate) error_since: AtomicU64,
    pub(crate) error_function: AtomicU32,
}

/// Functions of the driver that programs requested, and bytes of a name, which ends with zero.
pub(crate) const MOST_FUNCTIONS: usize = 1024;
pub(crate) const LONGEST_NAME: usize = 64;

/// Texts of frames of Python, the first of these, where small processes find room for theirs, and the bytes of all.
pub(crate) const MOST_SITES: usize = 1 << 16;
pub(crate) const FIRST_SITES: usize = 1 << 13;
pub(crate) const TEXT: usize = 16 << 20;

/// A text: `file`, line and function of each frame, with 0x1f between and a new line behind, innermost first.
#[repr(C)]
pub(crate) struct Site {
    pub(crate) key: AtomicU64,
    pub(crate) text: AtomicU64,
    pub(crate) length: AtomicU32,
    /// The number of the file that has it.
    pub(crate) told: AtomicU32,
}

/// All that is in the mapping.
#[repr(C)]
pub(crate) struct Table {
    pub(crate) head: Head,
    pub(crate) rows: [Row; MOST_ROWS],
    /// How often a lock was made or ended at an address, by [`place`].
    pub(crate) generations: [AtomicU32; HASHED],
    /// Semaphores that are no locks, by [`place`].
    pub(crate) signals: [AtomicU32; HASHED],
    /// The row that took a lock of Python last, by [`place`]: where it is looked for when another thread gives it.
    pub(crate) takers: [AtomicU16; HASHED],
    pub(crate) sites: [Site; MOST_SITES],
    pub(crate) text: [u8; TEXT],
    pub(crate) starting: [Start; STARTING],
    /// `pthread_t` and number, by a hash of the first.
    pub(crate) threads: [[AtomicU64; 2]; THREADS],
    pub(crate) calls: [DriverCall; MOST_ROWS],
    pub(crate) functions: [[AtomicU8; LONGEST_NAME]; MOST_FUNCTIONS],
    /// A bit for each row that the next thread may have.
    pub(crate) free: [AtomicU64; MOST_ROWS / 64],
    /// The same of rows whose thread has ended with something.
    pub(crate) kept: [AtomicU64; MOST_ROWS / 64],
    pub(crate) seen: Seen,
}

/// Hashes of written records; in pages of its own, which a child drops.
#[repr(C, align(4096))]
pub(crate) struct Seen(pub(crate) [AtomicU64; SEEN]);

/// The table, once the recorder has begun.
#[inline(always)]
pub(crate) fn table() -> Option<&'static Table> {
    // SAFETY: the mapping is never unmapped.
    unsafe { BEACON.table.load(Ordering::Relaxed).as_ref() }
}

/// Record nothing any more.
pub(crate) fn leave() {
    BEACON.table.store(core::ptr::null_mut(), Ordering::Release);
}

/// Make the table. Nothing is recorded in a process that has no room for it.
pub(crate) fn make(epoch: i64) {
    const READ_WRITE: usize = 3;
    const PRIVATE_ANONYMOUS_NORESERVE: usize = 0x2 | 0x20 | 0x4000;
    let arguments = [0, size_of::<Table>(), READ_WRITE, PRIVATE_ANONYMOUS_NORESERVE, usize::MAX, 0];
    let address = system_call(MMAP, arguments);
    if address <= 0 {
        return;
    }
    // A process uses some dozens of its pages: large ones would be 2 MiB each, to be filled with zeros and copied for a
    // child.
    const NO_HUGE_PAGES: usize = 15;
    system_call(arch::MADVISE, [address as usize, size_of::<Table>(), NO_HUGE_PAGES, 0, 0, 0]);
    let table = address as *mut Table;
    // SAFETY: a new mapping of that size, which nobody else knows yet.
    unsafe {
        let head = &raw mut (*table).head;
        (*head).magic = MAGIC;
        (*head).version = 4;
        (*head).process = AtomicU32::new(system_call(arch::GETPID, [0; 6]) as u32);
        (*head).row_size = size_of::<Row>() as u32;
        (*head).held_size = size_of::<Held>() as u32;
        (*head).rows_at = core::mem::offset_of!(Table, rows) as u32;
        (*head).held_at = core::mem::offset_of!(Row, held) as u32;
        (*head).most_held = MOST_HELD as u32;
        (*head).epoch = epoch;
        (*head).generations = &raw const (*table).generations as u64;
        (*head).hashed = HASHED as u64;
        (*head).sites = &raw const (*table).sites as u64;
        (*head).site_count = MOST_SITES as u64;
        (*head).calls = &raw const (*table).calls as u64;
        (*head).call_size = size_of::<DriverCall>() as u64;
        (*head).functions = &raw const (*table).functions as u64;
        (*head).function_size = LONGEST_NAME as u64;
        (*head).function_count = MOST_FUNCTIONS as u64;
    }
    BEACON.table.store(table, Ordering::Release);
}

/// Where the entry of a lock is in a table of [`HASHED`] entries. Locks that lie near each other have entries that do,
/// so that a process touches few pages of the table; each 1 MiB of addresses begins somewhere else, since heaps and
/// stacks have the same things at the same distance. Locks of four bytes, side by side, have entries of their own.
#[inline(always)]
pub(crate) fn place(lock: u64) -> usize {
    let block = (lock >> 20).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40;
    (block.wrapping_add(lock >> 4).wrapping_add((lock & 12) << 16)) as usize & (HASHED - 1)
}

/// Scatters what is alike.
#[inline(always)]
pub(crate) fn hash(mut value: u64) -> u64 {
    value ^= value >> 32;
    value = value.wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^= value >> 29;
    value = value.wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ (value >> 32)
}
