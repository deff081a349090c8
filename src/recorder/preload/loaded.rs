//! Which files have code in the process: by what the kernel says, since the loader would have to be waited for.
//!
//! In: an address that took a lock, and the end of the process. Out: records of [`mod@file`]: of the file that is
//! mapped at that address, and at the end of all that are mapped to be run, by which lockscope knows afterwards which
//! locks could not be seen. Each is written once. A process that is killed by a signal, or becomes another program by a
//! call that nobody sees, has not come to its end, which its file says. Nothing is read of the files here.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{self, CLOSE, EXIT_GROUP, OPENAT, READ, interposed, raw_call, system_call};
use crate::file;
use crate::filters;
use crate::provoke;
use crate::stand;
use crate::table::{Table, table};

const MODULE: u8 = b'M';

/// Mapped code that the file has the names of.
static MODULES: [[AtomicU64; 2]; 1024] = [const { [const { AtomicU64::new(0) }; 2] }; 1024];
static MODULE_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The number of the file that the list belongs to.
static MODULES_OF: AtomicU32 = AtomicU32::new(0);
static IS_READING: AtomicBool = AtomicBool::new(false);
/// The buffer for a part of the kernel's list. Threads may have small stacks.
static mut BUFFER: [u8; 16384] = [0; 16384];

/// The process has made a thread: only then can its locks be waited for.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);

interposed! {
    _exit => exit_now;
    _Exit => exit_now;
}

#[cfg(not(test))]
#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = exits;

/// The C library's own does no more.
extern "C" fn exit_now(status: c_int) -> ! {
    exits();
    loop {
        raw_call(EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]);
    }
}

extern "C" fn exits() {
    filters::look();
    if is_own() {
        provoke::disarm();
    }
    ends();
}

/// A child that shares the memory (vfork) is not the process.
fn is_own() -> bool {
    table().is_some_and(|table| table.head.process.load(Ordering::Relaxed) == system_call(arch::GETPID, [0; 6]) as u32)
}

/// A thread is about to be made.
pub(crate) fn thread_made() {
    if !HAS_THREADS.load(Ordering::Relaxed) {
        HAS_THREADS.store(true, Ordering::Relaxed);
    }
}

/// Whether the process has ever made a thread.
pub(crate) fn has_threads() -> bool {
    HAS_THREADS.load(Ordering::Relaxed)
}

/// In a child there is one thread, and nobody reads.
pub(crate) fn forked() {
    HAS_THREADS.store(false, Ordering::Relaxed);
    IS_READING.store(false, Ordering::Relaxed);
}

/// The process ends, or becomes another program: what it has loaded is written down, where it took locks in orders or
/// had threads.
pub(crate) extern "C" fn ends() {
    filters::look();
    let Some(table) = table().filter(|_| file::is_wanted() && is_own()) else { return };
    stand::let_all_go();
    if (file::is_there() || HAS_THREADS.load(Ordering::Relaxed)) && tell(table, Wanted::All) {
        file::ended();
    }
}

/// The part of the kernel's list that is written down.
#[derive(Clone, Copy)]
enum Wanted {
    /// The module at this address.
    At(u64),
    /// All code that is not known yet.
    All,
}

fn is_known(is_it: impl Fn(u64, u64) -> bool) -> bool {
    if MODULES_OF.swap(file::number(), Ordering::Relaxed) != file::number() {
        MODULE_COUNT.store(0, Ordering::Relaxed);
    }
    let count = MODULE_COUNT.load(Ordering::Acquire);
    MODULES.iter().take(count).any(|[start, end]| is_it(start.load(Ordering::Relaxed), end.load(Ordering::Relaxed)))
}

/// Have the file that is mapped at an address written down.
pub(crate) fn told(table: &Table, at: u64) {
    if !is_known(|start, end| (start..end).contains(&at)) {
        tell(table, Wanted::At(at));
    }
}

/// Show the mapping that has an address; whether the list could be read, which another thread may be reading.
pub(crate) fn find(at: u64, show: &mut dyn FnMut(&Mapping<'_>)) -> bool {
    read(&mut |mapping| {
        if (mapping.start..mapping.end).contains(&at) {
            show(mapping);
        }
    })
}

/// Have what is wanted written down; whether the kernel's list could be read to its end.
fn tell(table: &Table, wanted: Wanted) -> bool {
    read(&mut |mapping| {
        let is_wanted = match wanted {
            Wanted::At(at) => (mapping.start..mapping.end).contains(&at),
            Wanted::All => {
                mapping.is_code
                    && !mapping.path.is_empty()
                    && !is_known(|from, until| (from, until) == (mapping.start, mapping.end))
            }
        };
        if is_wanted {
            written(table, mapping);
        }
    })
}

/// A mapping of the process.
pub(crate) struct Mapping<'p> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    is_code: bool,
    /// Of the file, or empty.
    pub(crate) path: &'p [u8],
}

/// Read the kernel's list, and show each mapping; whether it could be read to its end.
fn read(show: &mut dyn FnMut(&Mapping<'_>)) -> bool {
    if IS_READING.swap(true, Ordering::Acquire) {
        return false;
    }
    const CLOSE_ON_EXEC: usize = 0o2000000;
    let file = system_call(OPENAT, [usize::MAX - 99, c"/proc/self/maps".as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0]);
    let mut is_whole = false;
    if file >= 0 {
        let buffer = &raw mut BUFFER;
        // SAFETY: the reading thread has it alone.
        let buffer = unsafe { &mut *buffer };
        let mut kept = 0;
        while let Some(free) = buffer.get_mut(kept..) {
            let read = system_call(READ, [file as usize, free.as_mut_ptr() as usize, free.len(), 0, 0, 0]);
            if read <= 0 {
                is_whole = read == 0;
                break;
            }
            let filled = kept + read as usize;
            let mut begin = 0;
            while let Some(length) =
                buffer.get(begin..filled).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
            {
                if let Some(mapping) = buffer.get(begin..begin + length).and_then(mapping) {
                    show(&mapping);
                }
                begin += length + 1;
            }
            if begin == 0 && filled == buffer.len() {
                break;
            }
            // SAFETY: both within the buffer.
            unsafe { core::ptr::copy(buffer.as_ptr().add(begin), buffer.as_mut_ptr(), filled - begin) };
            kept = filled - begin;
        }
        system_call(CLOSE, [file as usize, 0, 0, 0, 0, 0]);
    }
    IS_READING.store(false, Ordering::Release);
    is_whole
}

/// A line of the kernel's: `start-end perms offset device inode  path`.
fn mapping(line: &[u8]) -> Option<Mapping<'_>> {
    let mut parts = line.split(|byte| *byte == b' ').filter(|part| !part.is_empty());
    let (range, permissions, offset) = (parts.next()?, parts.next()?, parts.next()?);
    let mut ends = range.split(|byte| *byte == b'-').map(hexadecimal);
    let (start, end) = (ends.next()?, ends.next()?);
    let path = line.iter().position(|byte| *byte == b'/').and_then(|slash| line.get(slash..)).unwrap_or_default();
    Some(Mapping { start, end, offset: hexadecimal(offset), is_code: permissions.get(2) == Some(&b'x'), path })
}

/// Write a mapping down.
fn written(table: &Table, mapping: &Mapping<'_>) {
    let path = mapping.path.get(..mapping.path.len().min(1000)).unwrap_or_default();
    let words = [mapping.start, mapping.end, mapping.offset, path.len() as u64];
    if file::write(table, MODULE, &words, path) {
        let count = MODULE_COUNT.load(Ordering::Relaxed);
        if let Some([from, until]) = MODULES.get(count) {
            from.store(mapping.start, Ordering::Relaxed);
            until.store(mapping.end, Ordering::Relaxed);
            MODULE_COUNT.store(count + 1, Ordering::Release);
        }
    }
}

fn hexadecimal(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| {
        value << 4
            | u64::from(match digit {
                b'0'..=b'9' => digit - b'0',
                _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10),
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_kernels_list_are_read() {
        assert_eq!((hexadecimal(b"7f00beef1000"), hexadecimal(b"FF")), (0x7f00_beef_1000, 0xff));
    }
}
