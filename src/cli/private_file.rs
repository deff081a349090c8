//! Files that the user names: written so that nobody else reads them, and that nothing of anybody else's is lost.
//!
//! In: a name and bytes. Out: the bytes in a new file of mode 0600 that takes the place of the old one at once, or in what stands
//! there already where that is no regular file: a device, a pipe, a descriptor of this process. Only a regular file of the
//! user's own is ever removed or replaced. The user's own symbolic links are followed, those that others may have laid are not.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{O_NOCTTY, O_NOFOLLOW, O_NONBLOCK};

/// How names of files begin that are not yet whole.
const UNFINISHED: &str = ".lockscope-";
/// As many links as the kernel follows (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    /// Somebody else could read it, or chooses what is overwritten.
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
    /// What the system said.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// What a name leads to.
#[derive(Debug)]
enum Place {
    /// Nothing yet, or a regular file: a folder without links in its path, and the name in it.
    Name(PathBuf, Option<Metadata>),
    /// A descriptor of this process, by its link in /proc.
    Descriptor(PathBuf),
    /// A device, a pipe, a socket.
    Other(PathBuf),
}

/// Write a whole file, or leave what was there.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    match resolved(path)? {
        Place::Descriptor(link) => to_descriptor(&link, bytes).map_err(FileError::from),
        Place::Other(path) => {
            let mut file = OpenOptions::new().write(true).custom_flags(O_NOFOLLOW | O_NOCTTY).open(path)?;
            Ok(file.write_all(bytes)?)
        }
        Place::Name(path, before) => match replaced(&path, bytes) {
            // A mount point cannot be replaced, nor a file in a folder where one may make none: but written to.
            Err(error) if before.as_ref().is_some_and(is_own) && may_be_in_place(&error) => {
                in_place(&path, bytes).map_err(FileError::from)
            }
            done => Ok(done?),
        },
    }
}

/// Remove a file that an earlier run left, if it is a regular file of the user's own; whatever else bears the name stays.
pub(super) fn forget(path: &Path) {
    if let Ok(Place::Name(path, Some(before))) = resolved(path)
        && is_own(&before)
        && std::fs::remove_file(&path).is_err_and(|error| may_be_in_place(&error))
    {
        let _ = in_place(&path, b"");
    }
}

/// See that files can be made in a folder.
pub(super) fn probe(folder: &Path) -> io::Result<()> {
    tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder).map(drop)
}

fn is_own(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.uid() == nix::unistd::geteuid().as_raw()
}

fn may_be_in_place(error: &io::Error) -> bool {
    use nix::libc::{EACCES, EBUSY, EPERM, EROFS};
    matches!(error.raw_os_error(), Some(EBUSY | EACCES | EPERM | EROFS))
}

/// A new file in the place of what bears the name; half a report is none, and a reader would take it for a damaged one.
fn replaced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    // Made with O_EXCL and mode 0600; removed when dropped.
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path).map(drop).map_err(|error| error.error)
}

fn in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    if !is_own(&file.metadata()?) {
        return Err(io::Error::from_raw_os_error(nix::libc::EPERM));
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

/// Follow links one by one, and say what stands at their end.
fn resolved(path: &Path) -> Result<Place, FileError> {
    let descriptors = Path::new("/proc/self/fd").canonicalize().ok();
    let mut path = std::path::absolute(path)?;
    for _ in 0..MOST_LINKS {
        let name = path.file_name().ok_or(FileError::NoFile)?.to_owned();
        let named = path.parent().ok_or(FileError::NoFile)?.to_path_buf();
        for part in named.ancestors() {
            if let Ok(metadata) = part.symlink_metadata()
                && metadata.is_symlink()
            {
                is_trusted(part, &metadata, "is a link")?;
            }
        }
        let folder = named.canonicalize()?;
        path = folder.join(&name);
        if descriptors.as_ref() == Some(&folder) {
            return Ok(Place::Descriptor(path));
        }
        let metadata = match path.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::Name(path, None)),
            Err(error) => return Err(error.into()),
        };
        let kind = metadata.file_type();
        if kind.is_symlink() {
            is_trusted(&path, &metadata, "is a link")?;
            path = folder.join(std::fs::read_link(&path)?);
            continue;
        }
        is_trusted(&path, &metadata, "is a file")?;
        return match () {
            () if kind.is_file() => Ok(Place::Name(path, Some(metadata))),
            () if kind.is_dir() => Err(io::Error::from_raw_os_error(nix::libc::EISDIR).into()),
            () if kind.is_socket() => Err(io::Error::from_raw_os_error(nix::libc::ENXIO).into()),
            () => Ok(Place::Other(path)),
        };
    }
    Err(FileError::NoFile)
}

/// Whether no other user can have put it there: it is the user's own or root's, or nobody else may write to the folder.
fn is_trusted(path: &Path, metadata: &Metadata, what: &'static str) -> Result<(), FileError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let folder = folder.metadata()?;
    let (own, owner) = (nix::unistd::geteuid().as_raw(), metadata.uid());
    let open =
        folder.mode() & 0o002 != 0 || folder.mode() & 0o020 != 0 && folder.gid() != nix::unistd::getegid().as_raw();
    if !open || owner == own || owner == 0 {
        return Ok(());
    }
    Err(FileError::OfSomebodyElse { path: path.display().to_string(), what, owner })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_private_also_when_they_existed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.txt");
        std::fs::write(&path, "a longer text than the new one").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        // Whoever has it open reads on in the old one.
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
