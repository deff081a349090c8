//! Which files have code in the process: by what the kernel says, since the loader would have to be waited for.
//!
//! In: an address that took a lock, and the end of the process. Out: records of [`file`](crate::file): of the file that is mapped at that
//! address, and at the end of all that are mapped to be run, by which lockscope knows afterwards which locks could not be seen.
//! Each is written once. A process that is killed by a signal, or becomes another program by a call that nobody sees, has not come to
//! its end, which its file says. Nothing is read of the files here.

use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::arch::{self, CLOSE, EXIT_GROUP, OPENAT, READ, interposed, system_call};
use crate::file;
use crate::table::{Table, table};

const MODULE: u8 = b'M';

/// Mapped code that the file has the names of.
static MODULES: [[AtomicU64; 2]; 1024] = [const { [const { AtomicU64::new(0) }; 2] }; 1024];
static MODULE_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Of which file the list is.
static MODULES_OF: AtomicU32 = AtomicU32::new(0);
static IS_READING: AtomicBool = AtomicBool::new(false);
/// What is read of the kernel's list at a time. Threads may have small stacks.
static mut BUFFER: [u8; 16384] = [0; 16384];

/// The process has made a thread: only then can its locks be waited for.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);

interposed! {
    _exit => exit_now;
    _Exit => exit_now;
}

#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = ends;

/// The C library's own does no more.
extern "C" fn exit_now(status: c_int) -> ! {
    ends();
    loop {
        system_call(EXIT_GROUP, [status as usize, 0, 0, 0, 0, 0]);
    }
}

/// A thread is about to be made.
pub(crate) fn thread_made() {
    if !HAS_THREADS.load(Ordering::Relaxed) {
        HAS_THREADS.store(true, Ordering::Relaxed);
    }
}

/// In a child there is one thread, and nobody reads.
pub(crate) fn forked() {
    HAS_THREADS.store(false, Ordering::Relaxed);
    IS_READING.store(false, Ordering::Relaxed);
}

/// The process ends, or becomes another program: what it has loaded is written down, where it took locks in orders or had threads.
pub(crate) extern "C" fn ends() {
    let Some(table) = table().filter(|_| file::is_wanted()) else { return };
    // A child that shares the memory (vfork) is not the process.
    let is_own = table.head.process.load(Ordering::Relaxed) == system_call(arch::GETPID, [0; 6]) as u32;
    if is_own && (file::is_there() || HAS_THREADS.load(Ordering::Relaxed)) && read(table, Wanted::All) {
        file::ended();
    }
}

/// What of the kernel's list is written down.
#[derive(Clone, Copy)]
enum Wanted {
    /// What has this address.
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
        read(table, Wanted::At(at));
    }
}

/// Read the kernel's list; whether it could be read to its end.
fn read(table: &Table, wanted: Wanted) -> bool {
    if IS_READING.swap(true, Ordering::Acquire) {
        return false;
    }
    const CLOSE_ON_EXEC: usize = 0o2000000;
    let file = system_call(OPENAT, [usize::MAX - 99, c"/proc/self/maps".as_ptr() as usize, CLOSE_ON_EXEC, 0, 0, 0]);
    let mut is_whole = false;
    if file >= 0 {
        // SAFETY: whoever reads has it alone.
        let buffer = unsafe { &mut *(&raw mut BUFFER) };
        let mut kept = 0;
        loop {
            let Some(free) = buffer.get_mut(kept..) else { break };
            let read = system_call(READ, [file as usize, free.as_mut_ptr() as usize, free.len(), 0, 0, 0]);
            if read <= 0 {
                is_whole = read == 0;
                break;
            }
            let filled = kept + read as usize;
            let mut begin = 0;
            while let Some(length) = buffer.get(begin..filled).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) {
                if let Some(line) = buffer.get(begin..begin + length) {
                    mapping(table, line, wanted);
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
fn mapping(table: &Table, line: &[u8], wanted: Wanted) {
    let mut parts = line.split(|byte| *byte == b' ').filter(|part| !part.is_empty());
    let (Some(range), Some(permissions), Some(offset)) = (parts.next(), parts.next(), parts.next()) else { return };
    let mut ends = range.split(|byte| *byte == b'-').map(hexadecimal);
    let (Some(start), Some(end)) = (ends.next(), ends.next()) else { return };
    let path = line.iter().position(|byte| *byte == b'/').and_then(|slash| line.get(slash..)).unwrap_or_default();
    let is_wanted = match wanted {
        Wanted::At(at) => (start..end).contains(&at),
        Wanted::All => {
            permissions.get(2) == Some(&b'x') && !path.is_empty() && !is_known(|from, until| (from, until) == (start, end))
        }
    };
    if !is_wanted {
        return;
    }
    let path = path.get(..path.len().min(1000)).unwrap_or_default();
    if file::write(table, MODULE, &[start, end, hexadecimal(offset), path.len() as u64], path) {
        let count = MODULE_COUNT.load(Ordering::Relaxed);
        if let Some([from, until]) = MODULES.get(count) {
            from.store(start, Ordering::Relaxed);
            until.store(end, Ordering::Relaxed);
            MODULE_COUNT.store(count + 1, Ordering::Release);
        }
    }
}

fn hexadecimal(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| {
        value << 4 | u64::from(match digit {
            b'0'..=b'9' => digit - b'0',
            _ => (digit | 0x20).wrapping_sub(b'a').wrapping_add(10),
        })
    })
}
