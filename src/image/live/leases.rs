//! Files whose holder gets a signal when somebody opens them (fcntl(2), F_SETLEASE).
//!
//! In: the lines of /proc/locks ([`LockedFiles`]), which a sample reads while other things are done. Out: whether opening a file to read
//! it would break a lease.

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use nix::sys::stat::{major, minor};

use super::locked_files::LockedFiles;
use super::proc_fs::ProcFs;

/// The leases of the machine at some moment of a sample.
#[derive(Debug)]
pub(super) struct Leases {
    locks: Mutex<LockedFiles>,
    /// The files whose leases a reader breaks, as the kernel writes them: device and inode.
    files: OnceLock<BTreeSet<String>>,
}

impl Leases {
    /// They are read when they are first asked for.
    pub(super) fn unread() -> Leases {
        Leases::of(LockedFiles::new(&ProcFs::new("/proc"), false))
    }

    /// They are read from now on.
    pub(super) fn begin(proc_fs: &ProcFs) -> Leases {
        Leases::of(LockedFiles::new(proc_fs, true))
    }

    fn of(locks: LockedFiles) -> Leases {
        Leases { locks: Mutex::new(locks), files: OnceLock::new() }
    }

    /// Whether opening the file with this device and inode, to read it, would break a lease.
    pub(super) fn has(&self, device: u64, inode: u64) -> bool {
        let files = self.files.get_or_init(|| {
            let lines = self.locks.lock().unwrap_or_else(PoisonError::into_inner).take_lines();
            String::from_utf8_lossy(&lines).lines().filter_map(broken_by_reading).map(str::to_owned).collect()
        });
        files.contains(&format!("{:02x}:{:02x}:{inode}", major(device), minor(device)))
    }
}

/// The file of a line of /proc/locks, if that is a lease which readers break. A lease that is being broken says so in place of its kind.
fn broken_by_reading(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [_, "LEASE", _, kind, _, file, ..] if *kind != "READ" => Some(file),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_to_write_and_leases_that_end() {
        let is_broken = |line: &str| broken_by_reading(line) == Some("fe:01:77");
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
        for leases in [Leases::begin(&ProcFs::new("/proc")), Leases::unread()] {
            assert!(!leases.has(file.dev(), file.ino()));
            assert!(!leases.has(file.dev(), file.ino()), "asked again");
        }
    }
}
