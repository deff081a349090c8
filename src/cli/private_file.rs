//! Files that the user names: written so that nobody else reads them, and that nothing of anybody else's is lost.
//!
//! In: a name and bytes. Out: the bytes in a new file of mode 0600 that takes the place of the old one at once, or in what stands
//! there already where that is no regular file: a device, a pipe, a descriptor of this process. Only a regular file of the
//! user's own is ever removed or replaced. The user's own symbolic links are followed, those that others may have laid are not.
//!
//! Each folder on the way is opened beneath the one before, and links are followed here and not by the kernel. So nobody can put
//! another folder in the place of one that was judged already.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// How names of files begin that are not yet whole.
const UNFINISHED: &str = ".lockscope-";
/// As many links as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;
/// Names that are tried for an unfinished file, and times that somebody else may make a file first.
const ATTEMPTS: usize = 32;

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// Another user could read it, or chooses which file is overwritten.
    #[error(
        "`{path}` {what} of user {owner}, in a folder that others may write to: what is written there may be theirs to read or to \
         exchange; name a file in a folder of your own"
    )]
    OfSomebodyElse {
        /// The file or link.
        path: String,
        /// "is a file", "is a link".
        what: &'static str,
        /// Its owner.
        owner: u32,
    },
    /// Links that lead in a circle, or a name without a last part.
    #[error("it names no file")]
    NoFile,
    /// The system's error.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> FileError {
        FileError::System(errno.into())
    }
}

/// A folder that is open, and its path without links.
#[derive(Debug)]
struct Folder {
    file: OwnedFd,
    path: PathBuf,
    /// Others may put entries there, or exchange them.
    is_shared: bool,
}

/// The target of a name.
#[derive(Debug)]
enum Place {
    /// Nothing yet, or a regular file: the folder, and the name in it.
    Name(Folder, OsString, Option<FileStat>),
    /// A descriptor of this process, by its link in /proc.
    Descriptor(PathBuf),
    /// A device, a pipe.
    Other(Folder, OsString),
}

/// Write a whole file, or leave what was there.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    for _ in 0..ATTEMPTS {
        let (folder, name, before) = match resolved(path, false)? {
            Place::Descriptor(link) => return to_descriptor(&link, bytes).map_err(FileError::from),
            Place::Other(folder, name) => {
                let how = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
                let file = openat(&folder.file, name.as_os_str(), how, Mode::empty())?;
                return Ok(File::from(file).write_all(bytes)?);
            }
            Place::Name(folder, name, before) => (folder, name, before),
        };
        match replaced(&folder, &name, before.is_some(), bytes) {
            // Another process made it in the meantime.
            Err(error) if before.is_none() && error.raw_os_error() == Some(libc::EEXIST) => {}
            // A mount point cannot be replaced, nor a file in a folder where one may make none: but written to.
            Err(error) if before.as_ref().is_some_and(is_own) && may_be_in_place(&error) => {
                return in_place(&folder, &name, bytes).map_err(FileError::from);
            }
            done => return Ok(done?),
        }
    }
    Err(Errno::EEXIST.into())
}

/// Remove a file that an earlier run left, if it is a regular file of the user's own; whatever else bears the name stays.
pub(super) fn forget(path: &Path) {
    if let Ok(Place::Name(folder, name, Some(before))) = resolved(path, false)
        && is_own(&before)
        && !(folder.is_shared && before.st_nlink > 1)
        && unlinkat(&folder.file, name.as_os_str(), UnlinkatFlags::NoRemoveDir)
            .is_err_and(|error| may_be_in_place(&error.into()))
    {
        let _ = in_place(&folder, &name, b"");
    }
}

/// Make a folder where there is none, and see that files can be made in it; its path without links.
pub(super) fn folder(path: &Path) -> Result<PathBuf, FileError> {
    match resolved(&path.join(format!("{UNFINISHED}probe")), true)? {
        Place::Name(folder, ..) => {
            let (_, name) = unfinished(&folder)?;
            unlinkat(&folder.file, name.as_str(), UnlinkatFlags::NoRemoveDir)?;
            Ok(folder.path)
        }
        Place::Descriptor(_) | Place::Other(..) => Err(FileError::NoFile),
    }
}

/// A text as a part of a file's name, wherever it comes from: letters, digits, `-` and `.`, and no more than a host's name may have.
pub(super) fn name_part(text: &str) -> String {
    const MOST: usize = 64;
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
    text.chars().map(|letter| if is_plain(&letter) { letter } else { '_' }).take(MOST).collect()
}

fn own_id() -> u32 {
    nix::unistd::geteuid().as_raw()
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn is_own(stat: &FileStat) -> bool {
    kind(stat) == SFlag::S_IFREG && stat.st_uid == own_id()
}

fn may_be_in_place(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EACCES | libc::EPERM | libc::EROFS))
}

/// A new file in a folder, and its name.
fn unfinished(folder: &Folder) -> io::Result<(File, String)> {
    let how = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let now = || std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.subsec_nanos());
    let mut last = Errno::EEXIST;
    for attempt in 0..ATTEMPTS {
        let name = format!("{UNFINISHED}{:x}-{:x}-{attempt:x}", std::process::id(), now());
        match openat(&folder.file, name.as_str(), how, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(file) => return Ok((File::from(file), name)),
            Err(Errno::EEXIST) => {}
            Err(error) => {
                last = error;
                break;
            }
        }
    }
    Err(last.into())
}

/// Puts a new file in the place of the named one. A reader would take half a report for a damaged one.
fn replaced(folder: &Folder, name: &OsStr, may_replace: bool, bytes: &[u8]) -> io::Result<()> {
    let (mut file, unfinished) = unfinished(folder)?;
    let written = file.write_all(bytes).and_then(|()| match may_replace {
        true => renameat(&folder.file, unfinished.as_str(), &folder.file, name).map_err(io::Error::from),
        false => crate::sys::rename_to_nothing(folder.file.as_fd(), OsStr::new(&unfinished), name),
    });
    written.inspect_err(|_| {
        let _ = unlinkat(&folder.file, unfinished.as_str(), UnlinkatFlags::NoRemoveDir);
    })
}

fn in_place(folder: &Folder, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let how = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(&folder.file, name, how, Mode::empty())?);
    let metadata = file.metadata()?;
    // Another name of it may stand in a folder of the user's own.
    let is_elsewhere = folder.is_shared && metadata.nlink() > 1;
    if !metadata.is_file() || metadata.uid() != own_id() || is_elsewhere {
        return Err(Errno::EPERM.into());
    }
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.set_len(0)?;
    file.write_all(bytes).inspect_err(|_| {
        let _ = file.set_len(0);
    })
}

/// Standard output keeps its place in a file that a shell opened; another descriptor is opened anew, at its end.
fn to_descriptor(link: &Path, bytes: &[u8]) -> io::Result<()> {
    match link.file_name().and_then(|name| name.to_str()) {
        Some("1") => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        Some("2") => io::stderr().lock().write_all(bytes),
        _ => {
            let mut file: File = OpenOptions::new().append(true).open(link)?;
            file.write_all(bytes)
        }
    }
}

impl Folder {
    /// `/`.
    fn root() -> Result<Folder, FileError> {
        let file = nix::fcntl::open("/", Folder::HOW, Mode::empty())?;
        Ok(Folder { is_shared: is_shared(&fstat(&file)?, 0), file, path: PathBuf::from("/") })
    }

    const HOW: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

    /// A folder in this one. `root_owner` owns `/`: in a user namespace that may be nobody who is known there.
    fn enter(self, name: &OsStr, root_owner: u32) -> Result<Folder, FileError> {
        let file = openat(&self.file, name, Folder::HOW, Mode::empty())?;
        let mut path = self.path;
        match name == ".." {
            true => drop(path.pop()),
            false => path.push(name),
        }
        Ok(Folder { is_shared: is_shared(&fstat(&file)?, root_owner), file, path })
    }

    /// Whether no other user can have put the entry there: it is the user's own or root's, or nobody else may write to the folder.
    fn is_trusted(&self, name: &OsStr, stat: &FileStat, what: &'static str) -> Result<(), FileError> {
        let owner = stat.st_uid;
        if !self.is_shared || owner == own_id() || owner == 0 {
            return Ok(());
        }
        Err(FileError::OfSomebodyElse { path: self.path.join(name).display().to_string(), what, owner })
    }
}

/// Whether others may put entries into a folder. A group counts as others: who belongs to it is not known.
fn is_shared(stat: &FileStat, root_owner: u32) -> bool {
    ![0, own_id(), root_owner].contains(&stat.st_uid) || stat.st_mode & 0o022 != 0
}

/// The parts of a path below where it begins.
fn parts(path: &Path) -> impl DoubleEndedIterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

/// Follow folders and links one by one, and say what stands at their end. `make` makes folders that are missing.
fn resolved(path: &Path, make: bool) -> Result<Place, FileError> {
    let descriptors = Path::new("/proc/self/fd").canonicalize().ok();
    let mut ahead: VecDeque<OsString> = parts(&std::path::absolute(path)?).collect();
    let mut folder = Folder::root()?;
    let root_owner = fstat(&folder.file)?.st_uid;
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        let is_last = ahead.is_empty();
        if is_last && descriptors.as_ref() == Some(&folder.path) {
            return Ok(Place::Descriptor(folder.path.join(name)));
        }
        let stat = match fstatat(&folder.file, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::ENOENT) if is_last => return Ok(Place::Name(folder, name, None)),
            Err(Errno::ENOENT) if make => {
                match mkdirat(&folder.file, name.as_os_str(), Mode::from_bits_truncate(0o777)) {
                    Ok(()) | Err(Errno::EEXIST) => folder = folder.enter(&name, root_owner)?,
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        match kind(&stat) {
            SFlag::S_IFLNK => {
                folder.is_trusted(&name, &stat, "is a link")?;
                links += 1;
                if links > MOST_LINKS {
                    return Err(FileError::NoFile);
                }
                let target = PathBuf::from(readlinkat(&folder.file, name.as_os_str())?);
                if target.is_absolute() {
                    folder = Folder::root()?;
                }
                for part in parts(&target).rev() {
                    ahead.push_front(part);
                }
            }
            SFlag::S_IFDIR if is_last => return Err(Errno::EISDIR.into()),
            _ if !is_last => folder = folder.enter(&name, root_owner)?,
            SFlag::S_IFSOCK => return Err(Errno::ENXIO.into()),
            found => {
                folder.is_trusted(&name, &stat, "is a file")?;
                return Ok(match found {
                    SFlag::S_IFREG => Place::Name(folder, name, Some(stat)),
                    _ => Place::Other(folder, name),
                });
            }
        }
    }
    Err(FileError::NoFile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt, symlink};

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_private_also_when_they_existed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.txt");
        std::fs::write(&path, "a longer text than the new one").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        // A reader that has the old file open reads on in it.
        let mut before = File::open(&path).unwrap();
        write(&path, b"new").unwrap();
        assert_eq!((std::fs::read(&path).unwrap().as_slice(), mode(&path)), (b"new".as_slice(), 0o600));
        let mut text = String::new();
        io::Read::read_to_string(&mut before, &mut text).unwrap();
        assert_eq!(text, "a longer text than the new one");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing unfinished is left");
    }

    #[test]
    fn own_links_are_followed_and_stay() {
        let directory = tempfile::tempdir().unwrap();
        let (link, other) = (directory.path().join("link"), directory.path().join("reports"));
        std::fs::create_dir(&other).unwrap();
        symlink("reports/latest.txt", &link).unwrap();
        write(&link, b"one").unwrap();
        assert_eq!(std::fs::read(other.join("latest.txt")).unwrap(), b"one");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        forget(&link);
        assert!(!other.join("latest.txt").exists() && link.symlink_metadata().is_ok());
        symlink("circle", directory.path().join("circle")).unwrap();
        assert!(matches!(write(&directory.path().join("circle"), b""), Err(FileError::NoFile)));
    }

    #[test]
    fn what_is_no_regular_file_is_written_to_and_never_removed() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe).unwrap()
        });
        write(&pipe, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        forget(&pipe);
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo());
        let link = directory.path().join("null");
        symlink("/dev/null", &link).unwrap();
        write(&link, b"gone").unwrap();
        forget(&link);
        assert!(Path::new("/dev/null").metadata().unwrap().file_type().is_char_device());
        assert!(write(directory.path(), b"").is_err());
    }

    #[test]
    fn a_descriptor_by_name_is_appended_to() {
        use std::os::fd::AsRawFd;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "before ").unwrap();
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        write(Path::new(&format!("/dev/fd/{}", file.as_raw_fd())), b"after").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"before after");
    }

    #[test]
    fn what_others_laid_in_a_shared_folder_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            return println!("skipped: a file of another user needs root");
        }
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
        let (file, link, own) =
            (directory.path().join("file"), directory.path().join("link"), directory.path().join("own"));
        std::fs::write(&file, "theirs").unwrap();
        std::fs::write(&own, "ours").unwrap();
        symlink(&own, &link).unwrap();
        let nobody = nix::unistd::Uid::from_raw(65534);
        nix::unistd::chown(&file, Some(nobody), None).unwrap();
        std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
        for path in [&file, &link] {
            let error = write(path, b"secret").unwrap_err().to_string();
            assert!(error.contains("user 65534") && error.contains("folder of your own"), "{error}");
            forget(path);
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"theirs");
        assert_eq!(std::fs::read(&own).unwrap(), b"ours");
        // The same in a folder where nobody else may write is the user's wish.
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        write(&file, b"new").unwrap();
        assert_eq!(mode(&file), 0o600);
    }
}
