//! Files whose holder gets a signal when somebody opens them (fcntl(2), F_SETLEASE).
//!
//! In: /proc/locks. Out: whether opening a file to read it would break a lease. The kernel gives that list only after all processors
//! have been heard of, which takes it 5 to 20 ms of waiting, so a sample reads it while other things are done.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use nix::sys::stat::{major, minor};

/// The list of locks, or the thread that reads it.
#[derive(Debug)]
enum List {
    Unread,
    Begun(JoinHandle<String>),
    Read(String),
}

/// The leases of the machine at some moment of a sample.
#[derive(Debug)]
pub(super) struct Leases {
    locks: Mutex<List>,
}

impl Leases {
    /// They are read when they are first asked for.
    pub(super) fn unread() -> Leases {
        Leases { locks: Mutex::new(List::Unread) }
    }

    /// They are read from now on, beside whatever else is done.
    pub(super) fn begin() -> Leases {
        let reader = std::thread::Builder::new().name("leases".to_owned()).spawn(read);
        Leases { locks: Mutex::new(reader.map_or(List::Unread, List::Begun)) }
    }

    /// Whether opening the file with this device and inode, to read it, would break a lease.
    pub(super) fn has(&self, device: u64, inode: u64) -> bool {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match std::mem::replace(&mut *locks, List::Unread) {
            List::Read(text) => text,
            List::Begun(reader) => reader.join().unwrap_or_else(|_| read()),
            List::Unread => read(),
        };
        let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
        let found = text.lines().any(|line| is_broken_by_reading(line, &file));
        *locks = List::Read(text);
        found
    }
}

/// Whether a line of /proc/locks names a lease on `file` that readers break. A lease that is being broken says so in place of its kind.
fn is_broken_by_reading(line: &str, file: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.get(1) == Some(&"LEASE") && words.get(3) != Some(&"READ") && words.contains(&file)
}

fn read() -> String {
    std::fs::read(Path::new("/proc/locks"))
        .map_or_else(|_| String::new(), |locks| String::from_utf8_lossy(&locks).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_to_write_and_leases_that_end() {
        let is_broken = |line: &str| is_broken_by_reading(line, "fe:01:77");
        assert!(is_broken("1: LEASE  ACTIVE    WRITE 4711 fe:01:77 0 EOF"));
        assert!(is_broken("1: LEASE  BREAKING  UNLCK 4711 fe:01:77 0 EOF"));
        assert!(!is_broken("1: LEASE  ACTIVE    READ  4711 fe:01:77 0 EOF"));
        assert!(!is_broken("1: LEASE  ACTIVE    WRITE 4711 fe:01:78 0 EOF"));
        assert!(!is_broken("1: FLOCK  ADVISORY  WRITE 4711 fe:01:77 0 EOF"));
    }

    #[test]
    fn a_file_of_its_own_has_none() {
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::tempfile().unwrap().metadata().unwrap();
        for leases in [Leases::begin(), Leases::unread()] {
            assert!(!leases.has(file.dev(), file.ino()));
            assert!(!leases.has(file.dev(), file.ino()), "asked again");
        }
    }
}
