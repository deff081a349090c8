//! The table that the recorder keeps in a process.
//!
//! In: a captured process. Out: [`Recorded`], or none where no recorder was preloaded. The offsets are those of
//! `preload/table.rs`, versions 2 to 4: calls into CUDA's driver came with the third, and with the fourth generations
//! of locks that lie near each other do so, too. The table has the sizes of its parts itself. Nothing of it is believed
//! that is not of the process's own threads: fork copies the rows of threads that the child does not have.

use super::calls::{Calls, DriverCall, time};
use crate::image::{Addr, Mapping, MemoryExt, ProcessImage};
use crate::limits;
use crate::limits::recorder::{LARGEST_DATA, LONGEST_TEXT, MOST_GENERATIONS, MOST_HELD, MOST_ROWS};

/// How the library's file is called.
pub(super) const FILE_STEM: &str = "liblockscope_recorder";
/// The first bytes of the beacon and of the table. The beacon's address is a multiple of [`BEACON_ALIGNMENT`].
const MAGIC: [u8; 16] = *b"LOCKSCOPE-REC-1\0";
const BEACON_ALIGNMENT: u64 = 64;
const VERSIONS: [u32; 3] = [4, 3, 2];
const WITH_CALLS: u32 = 3;
const WITH_PLACES: u32 = 4;

/// The head.
mod head {
    pub(super) const VERSION: u64 = 16;
    pub(super) const PROCESS: u64 = 20;
    pub(super) const ROW_SIZE: u64 = 24;
    pub(super) const HELD_SIZE: u64 = 28;
    pub(super) const ROWS_AT: u64 = 32;
    pub(super) const HELD_AT: u64 = 36;
    pub(super) const ROWS: u64 = 40;
    pub(super) const LOST: u64 = 48;
    pub(super) const EPOCH: u64 = 64;
    pub(super) const GENERATIONS: u64 = 72;
    pub(super) const HASHED: u64 = 80;
    pub(super) const SITES: u64 = 88;
    pub(super) const SITE_COUNT: u64 = 96;
}

/// A row.
mod row {
    pub(super) const TID: u64 = 0;
    pub(super) const STATE: u64 = 4;
    pub(super) const PTHREAD: u64 = 8;
    pub(super) const HELD_COUNT: u64 = 20;
    pub(super) const LIVES: u32 = 1;
}

/// An entry of a row.
mod held {
    pub(super) const LOCK: u64 = 0;
    pub(super) const GENERATION: u64 = 8;
    /// One byte, then one of the mode, then two of how often.
    pub(super) const KIND: u64 = 12;
    pub(super) const MODE: u64 = 13;
    pub(super) const SINCE: u64 = 16;
    pub(super) const AT: u64 = 24;
    pub(super) const STACK: u64 = 32;
    pub(super) const SITE: u64 = 40;
}

/// A text of frames of Python: where it is and how long.
mod site {
    pub(super) const SIZE: u64 = 24;
    pub(super) const TEXT: u64 = 8;
    pub(super) const LENGTH: u64 = 16;
    pub(super) const WITHIN: char = '\u{1f}';
}

/// The kind of a lock, by the call that took it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// `pthread_mutex_t`.
    Mutex,
    /// `pthread_rwlock_t`.
    ReadWriteLock,
    /// `pthread_spinlock_t`.
    Spinlock,
    /// `sem_t`.
    Semaphore,
    /// `threading.Lock`.
    PythonLock,
    /// `threading.RLock`.
    PythonRecursiveLock,
    /// An interpreter's lock.
    Gil,
    /// The end of a thread, which the thread has until then.
    ThreadEnd,
}

impl LockKind {
    /// By the letter that the recorder has for it.
    pub(super) fn of(letter: u8) -> Option<LockKind> {
        Some(match letter {
            b'M' => LockKind::Mutex,
            b'R' => LockKind::ReadWriteLock,
            b'P' => LockKind::Spinlock,
            b'S' => LockKind::Semaphore,
            b'L' => LockKind::PythonLock,
            b'N' => LockKind::PythonRecursiveLock,
            b'G' => LockKind::Gil,
            b'E' => LockKind::ThreadEnd,
            _ => return None,
        })
    }
}

/// How it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// By one.
    Alone,
    /// For reading.
    Reading,
}

/// A lock that a thread has taken and not given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedLock {
    /// Position of the thread among those of the image.
    pub(crate) thread: usize,
    /// Its address.
    pub(crate) lock: Addr,
    /// Its kind.
    pub(crate) kind: LockKind,
    /// How it is held.
    pub(crate) mode: Mode,
    /// How often it was taken.
    pub(crate) count: u32,
    /// When it was taken, in nanoseconds since 1970 by the machine's clock as it was when the process began. `None` where
    /// the recorder could not ask.
    pub(crate) since: Option<u64>,
    /// Where the call that took it returned to.
    pub(crate) at: Addr,
    /// The caller's stack pointer then.
    pub(crate) stack: Addr,
    /// The innermost frames of Python that took it, where the recorder knows the version.
    pub(crate) frames: Vec<PythonFrame>,
}

/// A frame of Python, as it was when a lock was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PythonFrame {
    /// Its file.
    pub(crate) file: String,
    /// Its line.
    pub(crate) line: u32,
    /// Its function.
    pub(crate) function: String,
}

/// The recorder's data in one process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    /// The locks, by thread.
    pub(crate) locks: Vec<RecordedLock>,
    /// Calls into CUDA's driver.
    pub(crate) calls: Vec<DriverCall>,
    /// How much found no room in the table.
    pub(crate) lost: u64,
}

/// Whether a file is the recorder, by its name.
pub(crate) fn is_recorder(name: &str) -> bool {
    name.rsplit('/').next().is_some_and(|name| name.starts_with(FILE_STEM))
}

impl Recorded {
    /// The recorder's data in this process, if it was preloaded there and had begun.
    pub(crate) fn of(process: &ProcessImage) -> Option<Recorded> {
        let of_recorder = |mapping: &&Mapping| mapping.write && mapping.path.as_deref().is_some_and(is_recorder);
        let table = process.mappings.iter().filter(of_recorder).find_map(|data| beacon(process, data))?;
        Table::at(process, table)?.read()
    }
}

/// The address of the table, by the beacon in the library's data.
fn beacon(process: &ProcessImage, data: &Mapping) -> Option<Addr> {
    let size = (data.end - data.start).min(LARGEST_DATA);
    let is_beacon = |at: &Addr| process.memory.bytes(*at, MAGIC.len()).is_ok_and(|bytes| bytes == MAGIC);
    let beacon = (0..size / BEACON_ALIGNMENT).map(|step| data.start + step * BEACON_ALIGNMENT).find(is_beacon)?;
    process.memory.pointer(beacon + 16).ok().filter(|table| !table.is_null())
}

/// The table with its sizes.
struct Table<'p> {
    process: &'p ProcessImage,
    at: Addr,
    version: u32,
    rows: u64,
    row_size: u64,
    rows_at: u64,
    held_size: u64,
    held_at: u64,
    epoch: u64,
    generations: Addr,
    hashed: u64,
    sites: Addr,
    site_count: u64,
}

impl<'p> Table<'p> {
    fn at(process: &'p ProcessImage, at: Addr) -> Option<Table<'p>> {
        let memory = &*process.memory;
        let version = memory.u32(at + head::VERSION).ok()?;
        if memory.bytes(at, MAGIC.len()).ok()? != MAGIC || !VERSIONS.contains(&version) {
            return None;
        }
        let size = |field: u64| memory.u32(at + field).ok().map(u64::from);
        let table = Table {
            process,
            at,
            version,
            rows: size(head::ROWS)?,
            row_size: size(head::ROW_SIZE)?,
            rows_at: size(head::ROWS_AT)?,
            held_size: size(head::HELD_SIZE)?,
            held_at: size(head::HELD_AT)?,
            epoch: memory.u64(at + head::EPOCH).ok()?,
            generations: memory.pointer(at + head::GENERATIONS).ok()?,
            hashed: memory.u64(at + head::HASHED).ok()?,
            sites: memory.pointer(at + head::SITES).ok()?,
            site_count: memory.u64(at + head::SITE_COUNT).ok()?,
        };
        let is_sound = table.held_size >= held::SITE + 4
            && table.hashed.is_power_of_two()
            && table.hashed <= MOST_GENERATIONS
            && table.held_at < table.row_size;
        is_sound.then_some(table)
    }

    fn read(&self) -> Option<Recorded> {
        let memory = &*self.process.memory;
        let lost = memory.u64(self.at + head::LOST).ok()?;
        let calls = if self.version >= WITH_CALLS { Calls::of(memory, self.at, self.epoch) } else { None };
        let mut recorded = Recorded { lost, ..Recorded::default() };
        if self.rows > MOST_ROWS {
            limits::met(MOST_ROWS, format!("the recorder's table of process {}", self.process.pid), "threads");
        }
        for position in 0..self.rows.min(MOST_ROWS) {
            let row = self.at + self.rows_at + position * self.row_size;
            let Some(thread) = self.thread(row) else { continue };
            recorded.calls.extend(calls.as_ref().and_then(|calls| calls.of_row(position, thread)));
            let count = memory.u32(row + row::HELD_COUNT).map_or(0, u64::from).min(MOST_HELD);
            let locks = (0..count).filter_map(|one| self.lock(row + self.held_at + one * self.held_size, thread));
            recorded.locks.extend(locks);
        }
        Some(recorded)
    }

    /// The thread whose row this is. After a fork the child has one of its parent's threads, with a new id, which it
    /// writes down when it comes to it; the others are in the parent.
    fn thread(&self, row: Addr) -> Option<usize> {
        let memory = &*self.process.memory;
        if memory.u32(row + row::STATE).ok()? != row::LIVES {
            return None;
        }
        let tid = memory.i32(row + row::TID).ok()?;
        let is_own = memory.i32(self.at + head::PROCESS).ok()? == self.process.ns_pid;
        let descriptor = memory.pointer(row + row::PTHREAD).ok()?;
        self.process.threads.iter().position(|thread| match is_own {
            true => thread.ns_tid == tid,
            false => thread.registers.and_then(|registers| registers.thread_descriptor()) == Some(descriptor),
        })
    }

    fn lock(&self, entry: Addr, thread: usize) -> Option<RecordedLock> {
        let memory = &*self.process.memory;
        let lock = memory.pointer(entry + held::LOCK).ok().filter(|lock| !lock.is_null())?;
        // Made anew or ended since: it is another lock.
        let place = if self.version >= WITH_PLACES { place(lock.0) } else { hash(lock.0) } & (self.hashed - 1);
        let generation = memory.u32(self.generations + place * 4).ok()?;
        if memory.u32(entry + held::GENERATION).ok()? != generation {
            return None;
        }
        let kind = LockKind::of(memory.u8(entry + held::KIND).ok()?)?;
        let mode = if memory.u8(entry + held::MODE).ok()? == 1 { Mode::Reading } else { Mode::Alone };
        Some(RecordedLock {
            thread,
            lock,
            kind,
            mode,
            count: memory.u32(entry + held::KIND).ok()? >> 16,
            since: time(memory.u64(entry + held::SINCE).ok()?, self.epoch),
            at: memory.pointer(entry + held::AT).ok()?,
            stack: memory.pointer(entry + held::STACK).ok()?,
            frames: memory.u32(entry + held::SITE).ok().and_then(|site| self.frames(site)).unwrap_or_default(),
        })
    }

    /// The frames of a text, by its number and one more.
    fn frames(&self, site: u32) -> Option<Vec<PythonFrame>> {
        let memory = &*self.process.memory;
        let place = u64::from(site).checked_sub(1).filter(|place| *place < self.site_count)?;
        let site = self.sites + place * site::SIZE;
        let text = memory.pointer(site + site::TEXT).ok().filter(|text| !text.is_null())?;
        let length = u64::from(memory.u32(site + site::LENGTH).ok()?).min(LONGEST_TEXT);
        let text = memory.bytes(text, length as usize).ok()?;
        Some(python_frames(&String::from_utf8_lossy(&text)))
    }
}

/// The frames of a text.
pub(super) fn python_frames(text: &str) -> Vec<PythonFrame> {
    let frame = |line: &str| {
        let mut parts = line.split(site::WITHIN);
        let (file, line) = (parts.next()?.to_owned(), parts.next()?.parse().ok()?);
        Some(PythonFrame { file, line, function: parts.next()?.to_owned() })
    };
    text.lines().filter_map(frame).collect()
}

/// Where `preload/table.rs` has the generation of a lock.
fn place(lock: u64) -> u64 {
    let block = (lock >> 20).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 40;
    block.wrapping_add(lock >> 4).wrapping_add((lock & 12) << 16)
}

/// Where it had it before: addresses were scattered.
fn hash(value: u64) -> u64 {
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    let value = (value ^ value >> 32).wrapping_mul(FACTOR);
    let value = (value ^ value >> 29).wrapping_mul(FACTOR);
    value ^ value >> 32
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::image::{Fault, Memory, ThreadImage};

    const DATA: u64 = 0x7f00_0000_0000;
    const TABLE: u64 = DATA + 0x1000;
    const GENERATIONS: u64 = TABLE + 0x1000;
    const SITES: u64 = TABLE + 0x1800;
    const TEXT: u64 = TABLE + 0x1900;
    const ROWS: u64 = 256;
    const LOCK: u64 = 0x5555_0000_1040;

    /// Bytes from [`DATA`] on.
    #[derive(Debug, Clone)]
    struct Made(Vec<u8>);

    impl Made {
        fn put(&mut self, at: u64, bytes: &[u8]) {
            let at = (at - DATA) as usize;
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }

    impl Memory for Made {
        fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
            let at = address.0.checked_sub(DATA).map(|at| at as usize).filter(|at| *at < self.0.len());
            let rest = &self.0[at.ok_or(Fault::NotCaptured(address))?..];
            let length = rest.len().min(buffer.len());
            buffer[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        }
    }

    /// A beacon, a table with one row of a thread that lives, and a lock of Python in it.
    fn made() -> Made {
        let mut made = Made(vec![0; 0x3000]);
        made.put(DATA + 128, &MAGIC);
        made.put(DATA + 144, &TABLE.to_le_bytes());
        made.put(TABLE, &MAGIC);
        for (field, value) in [
            (head::VERSION, WITH_PLACES),
            (head::PROCESS, 7),
            (head::ROW_SIZE, 512),
            (head::HELD_SIZE, 48),
            (head::ROWS_AT, ROWS as u32),
            (head::HELD_AT, 24),
            (head::ROWS, 1),
        ] {
            made.put(TABLE + field, &value.to_le_bytes());
        }
        for (field, value) in
            [(head::GENERATIONS, GENERATIONS), (head::HASHED, 16), (head::SITES, SITES), (head::SITE_COUNT, 4)]
        {
            made.put(TABLE + field, &value.to_le_bytes());
        }
        let row = TABLE + ROWS;
        made.put(row + row::TID, &9u32.to_le_bytes());
        made.put(row + row::STATE, &row::LIVES.to_le_bytes());
        made.put(row + row::HELD_COUNT, &1u32.to_le_bytes());
        made.put(row + 24 + held::LOCK, &LOCK.to_le_bytes());
        made.put(row + 24 + held::KIND, &[b'L', 0, 1, 0]);
        made.put(row + 24 + held::SITE, &2u32.to_le_bytes());
        let text = "/srv/orders.py\u{1f}12\u{1f}begin_update\nbroken\n";
        made.put(SITES + site::SIZE + site::TEXT, &TEXT.to_le_bytes());
        made.put(SITES + site::SIZE + site::LENGTH, &(text.len() as u32).to_le_bytes());
        made.put(TEXT, text.as_bytes());
        made
    }

    fn recorded(made: Made) -> Option<Recorded> {
        let mut data = Mapping::new(Addr(DATA), Addr(DATA + 0x1000));
        data.write = true;
        data.path = Some("/tmp/lockscope-recorder-0/liblockscope_recorder-12.so".into());
        let mut process = ProcessImage::unknown();
        process.ns_pid = 7;
        process.threads = vec![ThreadImage::new(8), ThreadImage::new(9)];
        process.mappings = vec![data];
        process.memory = Arc::new(made);
        Recorded::of(&process)
    }

    #[test]
    fn a_lock_is_read_with_its_thread_and_frames() {
        let locks = recorded(made()).expect("a table").locks;
        let [lock] = locks.as_slice() else { panic!("{locks:?}") };
        assert_eq!((lock.thread, lock.lock, lock.kind, lock.count), (1, Addr(LOCK), LockKind::PythonLock, 1));
        let frame = PythonFrame { file: "/srv/orders.py".into(), line: 12, function: "begin_update".into() };
        assert_eq!(lock.frames, [frame]);
    }

    #[test]
    fn the_last_call_into_cudas_driver_is_read_with_its_error() {
        const CALLS: u64 = TABLE + 0x1a00;
        const FUNCTIONS: u64 = TABLE + 0x1b00;
        let with = |depth: u32, function: u32| {
            let mut made = made();
            // The head's words, as `preload/table.rs` has them behind the threads' count.
            for (field, value) in [(112, CALLS), (120, 128), (128, FUNCTIONS), (136, 64), (144, 2)] {
                made.put(TABLE + field, &value.to_le_bytes());
            }
            made.put(FUNCTIONS, b"cuLaunchKernel");
            made.put(FUNCTIONS + 64, b"cuCtxSynchronize");
            for (field, value) in [(0, function), (4, depth), (56, 600), (60, 700), (72, 1)] {
                made.put(CALLS + field, &value.to_le_bytes());
            }
            made.put(CALLS + 8, &0x5005u64.to_le_bytes());
            made.put(CALLS + 64, &12u64.to_le_bytes());
            recorded(made).expect("a table").calls
        };
        let calls = with(0, 2);
        let [call] = calls.as_slice() else { panic!("{calls:?}") };
        assert_eq!((call.thread, call.function.as_str(), call.arguments[0]), (1, "cuCtxSynchronize", 0x5005));
        assert_eq!(call.result, Some(600));
        let error = call.error.as_ref().expect("an error");
        assert_eq!((error.number, error.function.as_str(), error.since), (700, "cuLaunchKernel", Some(12)));
        // It is in the call; a thread that has made none; a number of no function.
        assert_eq!(with(1, 2).first().map(|call| call.result), Some(None));
        assert_eq!(with(0, 0), []);
        assert_eq!(with(0, 3), []);
    }

    #[test]
    fn rows_that_are_over_and_locks_made_anew_are_not() {
        let none = |at: u64, bytes: &[u8]| {
            let mut made = made();
            made.put(at, bytes);
            assert_eq!(recorded(made).expect("a table").locks, [], "{at:#x}");
        };
        none(TABLE + ROWS + row::STATE, &[2]);
        none(TABLE + ROWS + row::TID, &[1]);
        none(GENERATIONS + (place(LOCK) & 15) * 4, &[1]);
        none(TABLE + head::PROCESS, &[6]);
        none(TABLE + ROWS + 24, &[0; 8]);
    }

    #[test]
    fn older_tables_have_generations_elsewhere() {
        let older = |at: u64| {
            let mut made = made();
            made.put(TABLE + head::VERSION, &WITH_CALLS.to_le_bytes());
            made.put(GENERATIONS + (at & 15) * 4, &[1]);
            recorded(made).expect("a table").locks.len()
        };
        assert_ne!(place(LOCK) & 15, hash(LOCK) & 15, "or the test tells nothing");
        assert_eq!((older(place(LOCK)), older(hash(LOCK))), (1, 0));
    }

    #[test]
    fn no_table_makes_it_panic() {
        let whole = made();
        for at in (0x80..0x98).chain(0x1000..0x1180).chain(0x1000 + 0x1800..0x1000 + 0x1930) {
            for byte in [0, 0x7f, 0xff] {
                let mut made = whole.clone();
                made.0[at] = byte;
                let _ = recorded(made);
            }
        }
    }
}
