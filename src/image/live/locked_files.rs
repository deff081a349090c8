//! The locks on files of the whole machine, from /proc/locks.
//!
//! In: where proc is. Out: [`FileLock`]s. The kernel gives that file only after all processors have been heard of, which takes it 5
//! to 20 ms of waiting (Linux 6.18): where it is known in time that it will be needed it is read while other things are done.

use std::path::Path;
use std::thread::JoinHandle;

use super::proc_fs::ProcFs;
use crate::image::descriptors::FileLock;

/// The locks as they were at some moment of a sample.
#[derive(Debug)]
pub(super) struct LockedFiles {
    proc_fs: ProcFs,
    reader: Option<JoinHandle<Vec<u8>>>,
}

impl LockedFiles {
    /// Not read yet; it is begun with at once where they will be `needed`.
    pub(super) fn new(proc_fs: &ProcFs, needed: bool) -> LockedFiles {
        let begin = || {
            let proc_fs = proc_fs.clone();
            let builder = std::thread::Builder::new().name("locks".to_owned());
            builder.spawn(move || read(&proc_fs)).ok()
        };
        LockedFiles { proc_fs: proc_fs.clone(), reader: needed.then(begin).flatten() }
    }

    /// The result of the read that has begun, or else of a read now.
    pub(super) fn take(&mut self) -> Vec<FileLock> {
        parse(&self.take_lines())
    }

    /// The same, as the kernel writes it.
    pub(super) fn take_lines(&mut self) -> Vec<u8> {
        self.reader.take().and_then(|reader| reader.join().ok()).unwrap_or_else(|| read(&self.proc_fs))
    }

    /// Read them now.
    pub(super) fn now(&self) -> Vec<FileLock> {
        parse(&read(&self.proc_fs))
    }
}

/// Whether an open file of this name may be one that programs lock: it has a name, and is neither a terminal nor nothing at all.
pub(super) fn may_be_locked(target: &str) -> bool {
    target.starts_with('/') && !matches!(target, "/dev/null" | "/dev/tty") && !target.starts_with("/dev/pts/")
}

/// Whether a process has such a file open.
pub(super) fn has_lockable(directory: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(directory.join("fd")) else { return false };
    let target = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).ok();
    entries.flatten().filter_map(target).any(|target| target.to_str().is_none_or(may_be_locked))
}

fn read(proc_fs: &ProcFs) -> Vec<u8> {
    std::fs::read(proc_fs.root().join("locks")).unwrap_or_default()
}

/// Parse /proc/locks: `1: FLOCK  ADVISORY  WRITE 1234 fe:01:5678 0 EOF`, with `->` before the kind of one that waits.
fn parse(bytes: &[u8]) -> Vec<FileLock> {
    String::from_utf8_lossy(bytes).lines().filter_map(parse_lock).collect()
}

/// Parse one line.
pub(super) fn parse_lock(line: &str) -> Option<FileLock> {
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
    Some(FileLock { kind, write, blocked, pid, device, inode, start, end, inherited: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_every_kind() {
        let text =
            b"1: FLOCK  ADVISORY  WRITE 4711 fe:01:12345 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 4712 fe:01:12345 0 EOF\n\
            2: POSIX  ADVISORY  READ  9 00:1b:7 100 199\n3: OFDLCK ADVISORY  WRITE -1 fe:01:8 0 EOF\ndamaged\n4: X\n";
        let locks = parse(text);
        assert_eq!(locks.len(), 4);
        assert_eq!((locks[0].pid, locks[0].blocked, locks[0].device, locks[0].inode), (4711, false, (0xfe, 1), 12345));
        assert!(locks[1].blocked && locks[1].write && locks[1].end == u64::MAX);
        assert_eq!((locks[2].kind.as_str(), locks[2].write, locks[2].start, locks[2].end), ("POSIX", false, 100, 199));
        assert_eq!(locks[3].pid, -1);
    }

    #[test]
    fn terminals_and_nothing_are_not_locked() {
        let lockable = ["/tmp/x.lock", "/dev/shm/x", "/dev/ttyUSB0"].map(may_be_locked);
        let others = ["/dev/null", "/dev/pts/3", "pipe:[7]", "anon_inode:[eventfd]", "socket:[9]"].map(may_be_locked);
        assert_eq!((lockable, others), ([true; 3], [false; 5]));
    }
}
