//! Descriptors, file locks and the other ends of pipes, from /proc.
//!
//! In: the captured processes and the system calls that their threads sleep in. Out: [`Descriptor`]s and
//! [`KernelFacts`]. Nothing is opened: to open a pipe through /proc/PID/fd would give it one more end. Everything is
//! read after the release; what is concluded from it holds only if a second look shows the same.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::proc_fs::ProcFs;
use crate::image::descriptors::{Descriptor, FileLock, KernelFacts, PipeEnd};
use crate::image::{ProcessImage, Syscall, ThreadImage};

/// Calls that wait for one descriptor, the first argument (x86-64): read, write and their vectors, splice.
const READS_AND_WRITES: [i64; 7] = [0, 1, 17, 18, 19, 20, 275];
/// fcntl and flock.
const LOCKS: [i64; 2] = [72, 73];
/// More descriptors than the kernel allows by default.
const MOST_DESCRIPTORS: usize = 1 << 20;
/// The access mode in the flags of a descriptor (fcntl.h): read only, write only, both.
const ACCESS_MODE: u32 = 3;

/// Fill in what the waits of these processes need.
pub(super) fn read(proc_fs: &ProcFs, processes: &mut [ProcessImage]) -> KernelFacts {
    let mut facts = KernelFacts::default();
    let calls = || processes.iter().flat_map(|process| &process.threads).filter_map(call);
    let locks = calls().any(|call| LOCKS.contains(&call.number));
    if !locks && !calls().any(|call| READS_AND_WRITES.contains(&call.number)) {
        return facts;
    }
    let mut pipes = BTreeSet::new();
    for process in processes.iter_mut() {
        let directory = proc_fs.process(process.pid);
        process.descriptors = descriptors(&directory).unwrap_or_default();
        let calls = process.threads.iter().filter_map(call);
        let waited = calls.filter(|call| READS_AND_WRITES.contains(&call.number) || LOCKS.contains(&call.number));
        let numbers: BTreeSet<i32> = waited.map(|call| call.arguments[0] as i32).collect();
        for descriptor in process.descriptors.iter_mut().filter(|descriptor| numbers.contains(&descriptor.number)) {
            identify(&directory, descriptor);
            if descriptor.is_pipe {
                pipes.insert(descriptor.target.clone());
            }
        }
    }
    for process in processes.iter_mut() {
        let directory = proc_fs.process(process.pid);
        for descriptor in process.descriptors.iter_mut().filter(|descriptor| pipes.contains(&descriptor.target)) {
            descriptor.is_pipe = true;
            (descriptor.reads, descriptor.writes) = access(&directory, descriptor.number);
        }
    }
    if locks {
        facts.locks = std::fs::read(proc_fs.root().join("locks")).map(|bytes| parse_locks(&bytes)).unwrap_or_default();
    }
    if !pipes.is_empty() {
        let captured: BTreeSet<i32> = processes.iter().map(|process| process.pid).collect();
        others(proc_fs, &pipes, &captured, &mut facts);
    }
    facts
}

/// The call that a thread sleeps in.
fn call(thread: &ThreadImage) -> Option<Syscall> {
    match thread.registers {
        Some(registers) => registers.asleep(),
        None => thread.syscall,
    }
}

/// All descriptors by number and name.
fn descriptors(directory: &Path) -> io::Result<Vec<Descriptor>> {
    let entries = std::fs::read_dir(directory.join("fd"))?;
    let one = |entry: std::fs::DirEntry| {
        let number = entry.file_name().to_str()?.parse().ok()?;
        let target = std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        Some(Descriptor { number, target, inode: None, is_pipe: false, reads: false, writes: false })
    };
    let mut list: Vec<Descriptor> = entries.flatten().take(MOST_DESCRIPTORS).filter_map(one).collect();
    list.sort_by_key(|descriptor| descriptor.number);
    Ok(list)
}

/// Inode and kind of the open file.
fn identify(directory: &Path, descriptor: &mut Descriptor) {
    // stat follows the link to the open file itself, and opens nothing.
    if let Ok(metadata) = std::fs::metadata(directory.join("fd").join(descriptor.number.to_string())) {
        descriptor.inode = Some(metadata.ino());
        descriptor.is_pipe = metadata.file_type().is_fifo();
    }
}

/// Whether a descriptor reads, and writes.
fn access(directory: &Path, number: i32) -> (bool, bool) {
    let text = std::fs::read_to_string(directory.join("fdinfo").join(number.to_string())).unwrap_or_default();
    let flags = text.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    match flags.map(|flags| flags & ACCESS_MODE) {
        Some(0) => (true, false),
        Some(1) => (false, true),
        // Where the kernel does not tell, it may be either.
        _ => (true, true),
    }
}

/// Ends of `pipes` in all processes that are not captured.
fn others(proc_fs: &ProcFs, pipes: &BTreeSet<String>, captured: &BTreeSet<i32>, facts: &mut KernelFacts) {
    let Ok(entries) = std::fs::read_dir(proc_fs.root()) else { return };
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids.filter(|pid| !captured.contains(pid) && *pid != own) {
        let directory = proc_fs.process(pid);
        let list = match descriptors(&directory) {
            Ok(list) => list,
            Err(error) => {
                // Otherwise it ended meanwhile.
                facts.unread += usize::from(error.kind() == io::ErrorKind::PermissionDenied);
                continue;
            }
        };
        for descriptor in list.into_iter().filter(|one| pipes.contains(&one.target)) {
            let (reads, writes) = access(&directory, descriptor.number);
            let name = super::proc_fs::name(&directory).unwrap_or_default();
            let end = PipeEnd { target: descriptor.target, pid, name, reads, writes };
            if !facts.ends.contains(&end) {
                facts.ends.push(end);
            }
        }
    }
}

/// /proc/locks: `1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF`, with `->` before the kind of one that waits.
fn parse_locks(bytes: &[u8]) -> Vec<FileLock> {
    String::from_utf8_lossy(bytes).lines().filter_map(parse_lock).collect()
}

fn parse_lock(line: &str) -> Option<FileLock> {
    let mut words = line.split_whitespace().skip(1).peekable();
    let blocked = words.next_if_eq(&"->").is_some();
    let kind = words.next()?.to_owned();
    let _advisory = words.next()?;
    let write = words.next()? == "WRITE";
    let pid = words.next()?.parse().ok()?;
    let mut file = words.next()?.split(':');
    let mut hexadecimal = || u32::from_str_radix(file.next()?, 16).ok();
    let device = (hexadecimal()?, hexadecimal()?);
    let inode = file.next()?.parse().ok()?;
    let start = words.next()?.parse().ok()?;
    let end = match words.next()? {
        "EOF" => u64::MAX,
        number => number.parse().ok()?,
    };
    Some(FileLock { kind, write, blocked, pid, device, inode, start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_every_kind() {
        let text =
            b"1: FLOCK  ADVISORY  WRITE 4711 fe:01:12345 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 4712 fe:01:12345 0 EOF\n\
            2: POSIX  ADVISORY  READ  9 00:1b:7 100 199\n3: OFDLCK ADVISORY  WRITE -1 fe:01:8 0 EOF\ndamaged\n4: X\n";
        let locks = parse_locks(text);
        assert_eq!(locks.len(), 4);
        assert_eq!((locks[0].pid, locks[0].blocked, locks[0].device, locks[0].inode), (4711, false, (0xfe, 1), 12345));
        assert!(locks[1].blocked && locks[1].write && locks[1].end == u64::MAX);
        assert_eq!((locks[2].kind.as_str(), locks[2].write, locks[2].start, locks[2].end), ("POSIX", false, 100, 199));
        assert_eq!(locks[3].pid, -1);
    }

    #[test]
    fn own_descriptors_and_their_directions() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut list = descriptors(Path::new("/proc/self")).expect("readable");
        let number = std::os::fd::AsRawFd::as_raw_fd(&reader);
        let other = std::os::fd::AsRawFd::as_raw_fd(&writer);
        let own = list.iter_mut().find(|descriptor| descriptor.number == number).expect("there");
        identify(Path::new("/proc/self"), own);
        assert!(own.is_pipe && own.target == format!("pipe:[{}]", own.inode.expect("asked")));
        assert_eq!(access(Path::new("/proc/self"), number), (true, false));
        assert_eq!(access(Path::new("/proc/self"), other), (false, true));
    }
}
