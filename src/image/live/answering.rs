//! Whether a file answers: those of programs and of other machines (FUSE, NFS) may keep whoever opens or reads them waiting, for ever
//! and beyond SIGKILL.
//!
//! In: a path in a target's root. Out: whether its file system said how it is and gave pieces of the file within a time, to a process
//! that is left behind if not. A server that dies between that and the reading is not found out here; to read whole libraries
//! ahead would take longer than the look. Files of other file systems are not asked.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::fstatfs;
use nix::sys::uio::pread;
use nix::unistd::{Pid, write};

use crate::image::{Gap, budget};
use crate::sys;

/// For all files of a process together; a busy server on another continent takes a second for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// As many places of a file are read.
const PIECES: i64 = 16;
/// Types of file systems whose answers come from another program or machine (proc_filesystems(5)).
const FOREIGN: [&str; 14] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "ceph",
    "afs",
    "lustre",
    "gpfs",
    "beegfs",
    "glusterfs",
    "orangefs",
    "coda",
    "autofs",
];

/// Files that did not answer, each look later is spared the wait.
static SILENT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// One mounted file system of a target.
#[derive(Debug)]
struct Mount {
    device: (i32, i32),
    place: PathBuf,
    is_foreign: bool,
}

/// The file systems of a target, and the time that is left for those that may not answer.
#[derive(Debug)]
pub(super) struct Answering {
    mounts: Vec<Mount>,
    left: Mutex<Duration>,
}

impl Answering {
    /// Of the process whose directory in /proc this is.
    pub(super) fn new(directory: &Path) -> Answering {
        let text = super::proc_fs::text(&directory.join("mountinfo")).unwrap_or_default();
        Answering { mounts: text.lines().filter_map(parse_mount).collect(), left: Mutex::new(PATIENCE) }
    }

    /// Whether a mapped file can be opened and read without waiting for ever.
    pub(super) fn may_map(&self, root: &Path, path: &str, device: (i32, i32)) -> bool {
        let is_foreign = self.mounts.iter().any(|mount| mount.is_foreign && mount.device == device);
        self.may_open(root, path) && (!is_foreign || self.is_in_time(root, path))
    }

    /// The same by its path alone.
    pub(super) fn may_open(&self, root: &Path, path: &str) -> bool {
        let holds = |mount: &&Mount| Path::new(path).starts_with(&mount.place);
        let mount = self.mounts.iter().filter(holds).max_by_key(|mount| mount.place.as_os_str().len());
        !mount.is_some_and(|mount| mount.is_foreign) || self.is_in_time(root, path)
    }

    fn is_in_time(&self, root: &Path, path: &str) -> bool {
        let silent = || SILENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let name = root.join(path.trim_start_matches('/'));
        if silent().contains(&name) {
            return false;
        }
        let answers = self.ask_in_time(root, path);
        if !answers {
            budget::note(Gap::new(
                format!("code and names of `{path}`"),
                "its file system is another program's or machine's, and did not give it in time; it is not asked again",
            ));
            silent().insert(name);
        }
        answers
    }

    fn ask_in_time(&self, root: &Path, path: &str) -> bool {
        let mut left = self.left.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let began = Instant::now();
        let answers = !left.is_zero() && ask_apart(root, path, *left).unwrap_or(false);
        *left = left.saturating_sub(began.elapsed());
        answers
    }
}

/// A line of mountinfo: `36 35 98:0 /root /place options [tags] - type source options` (proc_pid_mountinfo(5)).
fn parse_mount(line: &str) -> Option<Mount> {
    let (mount, system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ');
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let place = fields.nth(1)?.replace("\\040", " ");
    let kind = system.split(' ').next()?;
    let is_foreign = FOREIGN.contains(&kind) || kind.starts_with("fuse");
    Some(Mount { device: (major.parse().ok()?, minor.parse().ok()?), place: place.into(), is_foreign })
}

/// Ask in a process of its own; whether it came to the end in time.
fn ask_apart(root: &Path, path: &str, patience: Duration) -> Option<bool> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = nix::fcntl::open(root, flags, Mode::empty()).ok()?;
    let path = CString::new(path).ok()?;
    let (own, theirs) = UnixStream::pair().ok()?;
    let mut kept = [root.as_raw_fd(), theirs.as_raw_fd()];
    kept.sort_unstable();
    let child = sys::start_apart(&kept, || {
        if give_pieces(root.as_fd(), &path) {
            let _ = write(&theirs, b"!");
        }
    });
    let child = child.ok()?;
    drop(theirs);
    let mut polled = [PollFd::new(own.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO);
    let came = matches!(poll(&mut polled, timeout), Ok(1));
    let answered = came && matches!(nix::unistd::read(&own, &mut [0; 1]), Ok(1));
    // One that waits for its file takes the signal now, or later, or never; it is not waited for.
    let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
    let _ = sys::collect(child);
    Some(answered)
}

/// System calls only: it runs in a copy of this process, whose other threads are missing.
fn give_pieces(root: BorrowedFd<'_>, path: &std::ffi::CStr) -> bool {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let Ok(file) = openat2(root, path, how) else { return false };
    // The first page may be in memory while nobody is there to give others.
    let Ok(size) = fstatfs(&file).and_then(|_| fstat(&file)).map(|stat| stat.st_size) else { return false };
    let mut buffer = [0; 512];
    (0..PIECES).all(|piece| pread(&file, &mut buffer, size / PIECES * piece).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_may_not_answer() {
        let kinds = |line: &str| parse_mount(line).map(|mount| (mount.device, mount.place, mount.is_foreign));
        let line = "36 35 0:52 / /mnt/a\\040b rw,relatime master:1 shared:2 - fuse.sshfs me@there: rw,user_id=0";
        assert_eq!(kinds(line), Some(((0, 52), PathBuf::from("/mnt/a b"), true)));
        assert_eq!(kinds("29 1 254:1 / / rw - ext4 /dev/vda1 rw"), Some(((254, 1), PathBuf::from("/"), false)));
        assert_eq!(kinds("29 1 254:1 / /"), None);
    }

    #[test]
    fn a_file_that_answers_is_in_time() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), vec![1; 200_000]).expect("written");
        assert_eq!(ask_apart(folder.path(), "/file", PATIENCE), Some(true));
        assert_eq!(ask_apart(folder.path(), "/absent", PATIENCE), Some(false));
        nix::unistd::mkfifo(&folder.path().join("pipe"), Mode::S_IRWXU).expect("made");
        assert!(ask_apart(folder.path(), "/pipe", PATIENCE).is_some());
    }
}
