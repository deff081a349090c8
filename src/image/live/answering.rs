//! Whether a file answers: those of programs and of other machines (FUSE, NFS) may keep a process that opens or reads
//! them waiting, for ever and beyond SIGKILL.
//!
//! In: a path in a target's root. Out: whether its file system gave its status and pieces of the file in time, to a
//! process that is left behind if not. Also out: a copy of the file, made by such a process, so that a later death of
//! the server makes no difference. Files that are too large for that are mapped as others are, and watched
//! ([`stalled`]): reading them ahead would take longer than the sample. Files of other file systems are not checked.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::sys::statfs::fstatfs;
use nix::sys::uio::pread;
use nix::unistd::{Pid, write};

use super::{copier, stalled};
use crate::image::{FileBytes, Gap, budget};
use crate::limits::live::{LARGEST_COPIES, LARGEST_COPY};
use crate::sys;

/// For all files of a process together; a busy server on another continent takes a second for one.
const PATIENCE: Duration = Duration::from_secs(5);
/// A piece of a file that is being copied has come by then.
const PATIENCE_FOR_A_PIECE: Duration = Duration::from_secs(3);
/// For the copies of all files of a process together; then they are mapped.
const TIME_FOR_COPIES: Duration = Duration::from_secs(5);
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

/// Files that did not answer: later samples need not wait for them again.
static SILENT: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Device and inode of a mapping.
pub(super) type FileId = ((i32, i32), u64);

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
    /// The same for copies, of time and of bytes.
    left_for_copies: Mutex<(Duration, u64)>,
}

/// The outcome of copying a file.
#[derive(Debug)]
pub(super) enum Copied {
    /// It is of a file system whose files are mapped, or is too large, or bears another name by now: it may be mapped.
    Not,
    /// This is it.
    Whole(FileBytes),
    /// It did not come, or there is no memory for it.
    Nothing,
}

impl Answering {
    /// For the process with this directory in /proc.
    pub(super) fn new(directory: &Path) -> Answering {
        let text = super::proc_fs::text(&directory.join("mountinfo")).unwrap_or_default();
        let mounts = text.lines().filter_map(parse_mount).collect();
        let left_for_copies = Mutex::new((TIME_FOR_COPIES, LARGEST_COPIES));
        Answering { mounts, left: Mutex::new(PATIENCE), left_for_copies }
    }

    /// Whether a mapped file can be opened and read without waiting for ever.
    pub(super) fn may_map(&self, root: &Path, path: &str, device: (i32, i32)) -> bool {
        self.may_open(root, path) && (!self.is_foreign_device(device) || self.is_in_time(root, path))
    }

    /// The same by its path alone.
    pub(super) fn may_open(&self, root: &Path, path: &str) -> bool {
        let mount = self.mount_of(path);
        match mount {
            Some(mount) if mount.is_foreign => self.is_in_time(root, path),
            // A listener of fanotify may hold up the opening of any file, and hang itself.
            Some(mount) => has_answered(mount.device, || self.is_in_time(root, path)),
            None => true,
        }
    }

    fn is_foreign_device(&self, device: (i32, i32)) -> bool {
        self.mounts.iter().any(|mount| mount.is_foreign && mount.device == device)
    }

    /// Whether a path leads to a file system whose answers come from another program or machine.
    pub(super) fn is_foreign_path(&self, path: &str) -> bool {
        self.mount_of(path).is_some_and(|mount| mount.is_foreign)
    }

    fn mount_of(&self, path: &str) -> Option<&Mount> {
        let holds = |mount: &&Mount| Path::new(path).starts_with(&mount.place);
        self.mounts.iter().filter(holds).max_by_key(|mount| mount.place.as_os_str().len())
    }

    /// A file that has answered, copied where its file system may fall silent; `device` and `inode` are those that it is mapped by.
    pub(super) fn copied(&self, root: &Path, path: &str, mapped: Option<FileId>) -> Copied {
        let is_foreign = self.is_foreign_path(path) || mapped.is_some_and(|(device, _)| self.is_foreign_device(device));
        let mut left = self.left_for_copies.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if !is_foreign {
            return Copied::Not;
        }
        if left.0.is_zero() {
            stalled::is_mapped(path);
            return Copied::Not;
        }
        let began = Instant::now();
        let copied = copy_apart(root, path, left.1.min(LARGEST_COPY), left.0, mapped.map(|(_, inode)| inode));
        left.0 = left.0.saturating_sub(began.elapsed());
        match copied {
            Some(Copy::Whole(file, size)) => {
                left.1 = left.1.saturating_sub(size);
                if !budget::take(size, || format!("a copy of `{path}`, whose file system may fall silent")) {
                    return Copied::Nothing;
                }
                sys::map_file(&file).map_or(Copied::Not, |bytes| Copied::Whole(FileBytes::new(bytes)))
            }
            Some(Copy::Silent) => {
                self.fell_silent(root, path);
                Copied::Nothing
            }
            Some(Copy::TooMuch | Copy::Other) | None => {
                stalled::is_mapped(path);
                Copied::Not
            }
        }
    }

    fn is_in_time(&self, root: &Path, path: &str) -> bool {
        let silent = || SILENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let name = root.join(path.trim_start_matches('/'));
        if silent().contains(&name) {
            return false;
        }
        let answers = self.ask_in_time(root, path);
        if !answers {
            self.fell_silent(root, path);
        }
        answers
    }

    fn fell_silent(&self, root: &Path, path: &str) {
        budget::note(Gap::new(
            format!("code and names of `{path}`"),
            "another program or machine, which has it or watches it, did not give it in time; it is not asked again",
        ));
        let name = root.join(path.trim_start_matches('/'));
        SILENT.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(name);
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

/// Whether a file of this file system has ever come in time; else whether one does now.
fn has_answered(device: (i32, i32), asked: impl FnOnce() -> bool) -> bool {
    static ANSWERED: Mutex<BTreeSet<(i32, i32)>> = Mutex::new(BTreeSet::new());
    let answered = || ANSWERED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let answers = answered().contains(&device) || asked();
    if answers {
        answered().insert(device);
    }
    answers
}

/// Ask in a process of its own; whether it came to its end in time.
fn ask_apart(root: &Path, path: &str, patience: Duration) -> Option<bool> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = nix::fcntl::open(root, flags, Mode::empty()).ok()?;
    let path = CString::new(path).ok()?;
    let (own, theirs) = UnixStream::pair().ok()?;
    let mut kept = [root.as_raw_fd(), theirs.as_raw_fd()];
    kept.sort_unstable();
    let child = sys::start_apart(&kept, || {
        give_pieces(root.as_fd(), &path);
        let _ = write(&theirs, b"!");
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

/// Open a file and read pieces of it. A missing file or an unknown system call is an answer, too. System calls only: it
/// runs in a copy of this process, whose other threads are missing.
fn give_pieces(root: BorrowedFd<'_>, path: &std::ffi::CStr) {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let Ok(file) = openat2(root, path, how) else { return };
    // The first page may be in memory while nobody is there to give others.
    let _ = fstatfs(&file);
    let Ok(stat) = fstat(&file) else { return };
    let mut buffer = [0; 512];
    for piece in 0..PIECES {
        let _ = pread(&file, &mut buffer, stat.st_size / PIECES * piece);
    }
}

/// A file that was to be copied.
#[derive(Debug)]
enum Copy {
    /// In memory, and its size.
    Whole(File, u64),
    /// It is larger, or takes longer, than it may.
    TooMuch,
    /// It is not the file that was meant, or cannot be read.
    Other,
    /// No piece came for too long.
    Silent,
}

/// Copy a file in a process of its own, which says a byte for each piece: `+`, and at the end `!`; `>` for one that is too large.
fn copy_apart(root: &Path, path: &str, most: u64, time: Duration, inode: Option<u64>) -> Option<Copy> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let root = nix::fcntl::open(root, flags, Mode::empty()).ok()?;
    let path = CString::new(path).ok()?;
    let memory = memfd_create(c"lockscope-copy", MFdFlags::MFD_CLOEXEC).ok()?;
    let (own, theirs) = UnixStream::pair().ok()?;
    let mut kept = [root.as_raw_fd(), theirs.as_raw_fd(), memory.as_raw_fd()];
    kept.sort_unstable();
    let child = sys::start_apart(&kept, || {
        give_all(root.as_fd(), &path, memory.as_fd(), theirs.as_fd(), most, inode);
    });
    let child = child.ok()?;
    drop(theirs);
    let begin = Instant::now();
    let became = loop {
        let mut polled = [PollFd::new(own.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(PATIENCE_FOR_A_PIECE).unwrap_or(PollTimeout::ZERO);
        match poll(&mut polled, timeout) {
            Ok(0) => break Copy::Silent,
            Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => {}
            Err(_) => break Copy::Other,
        }
        let mut said = [0; 64];
        let said = match nix::unistd::read(&own, &mut said) {
            Ok(length) => said.get(..length).unwrap_or_default(),
            Err(_) => break Copy::Other,
        };
        if said.contains(&b'!') {
            let file = File::from(memory);
            let size = file.metadata().ok().map(|metadata| metadata.len());
            break size.map_or(Copy::Other, |size| Copy::Whole(file, size));
        }
        if said.contains(&b'>') || begin.elapsed() >= time {
            break Copy::TooMuch;
        }
        if said.is_empty() {
            break Copy::Other;
        }
    };
    let _ = kill(Pid::from_raw(child), Signal::SIGKILL);
    copier::collect_later(child);
    Some(became)
}

/// System calls only, see [`give_pieces`].
fn give_all(
    root: BorrowedFd<'_>,
    path: &std::ffi::CStr,
    memory: BorrowedFd<'_>,
    socket: BorrowedFd<'_>,
    most: u64,
    inode: Option<u64>,
) {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    let Ok(file) = openat2(root, path, how) else { return };
    let Ok(stat) = fstat(&file) else { return };
    if stat.st_mode & SFlag::S_IFMT.bits() != SFlag::S_IFREG.bits() || inode.is_some_and(|inode| inode != stat.st_ino) {
        return;
    }
    let mut buffer = [0; 1 << 16];
    let mut at: u64 = 0;
    loop {
        if at > most || stat.st_size as u64 > most {
            let _ = write(socket, b">");
            return;
        }
        let Ok(length) = pread(&file, &mut buffer, at as i64) else { return };
        let Some(piece) = buffer.get(..length).filter(|piece| !piece.is_empty()) else { break };
        if write(memory, piece) != Ok(length) || write(socket, b"+").is_err() {
            return;
        }
        at += length as u64;
    }
    let _ = write(socket, b"!");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_copied_if_it_is_the_one_that_was_meant() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().expect("a folder");
        let bytes: Vec<u8> = (0..200_001u32).map(|number| number as u8).collect();
        std::fs::write(folder.path().join("file"), &bytes).expect("written");
        let inode = std::fs::metadata(folder.path().join("file")).expect("there").ino();
        let copy = |path, most, inode| copy_apart(folder.path(), path, most, PATIENCE, inode).expect("it starts");
        let Copy::Whole(file, size) = copy("/file", 200_001, Some(inode)) else { panic!("a copy") };
        assert_eq!((size, &*sys::map_file(&file).expect("mapped")), (200_001, &*bytes));
        assert!(matches!(copy("/file", 200_000, None), Copy::TooMuch));
        assert!(matches!(copy("/file", 300_000, Some(inode + 1)), Copy::Other));
        assert!(matches!(copy("/absent", 300_000, None), Copy::Other));
    }

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
        assert_eq!(ask_apart(folder.path(), "/absent", PATIENCE), Some(true));
        nix::unistd::mkfifo(&folder.path().join("pipe"), Mode::S_IRWXU).expect("made");
        assert!(ask_apart(folder.path(), "/pipe", PATIENCE).is_some());
    }
}
