//! Files: programs, libraries, debug files, of this machine and of containers.
//!
//! In: paths. Out: [`FileBytes`], mapped, each file once. Only regular files are opened, and opening one neither waits nor has an
//! effect; a path that a target names is followed inside the target's own root only. Nothing in files is interpreted here, and
//! whether a file is the right one is the caller's question.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::Mode;

use super::FileBytes;
use crate::limits::image::{MOST_LINKS, MOST_NAMES};
use crate::sys;

/// Opened files by device and inode.
#[derive(Debug, Default)]
pub(super) struct Disk {
    known: Mutex<HashMap<(u64, u64), FileBytes>>,
}

impl Disk {
    /// Map a file that the user or the kernel names, if it is a regular one and `is_it` says that it is the right one.
    pub(super) fn open(&self, path: &Path, is_it: impl Fn(&Metadata) -> bool) -> Option<FileBytes> {
        // By its place alone at first: to open a device or a pipe can have effects.
        let place = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(path).ok()?;
        self.map(place, is_it)
    }

    /// The same of a path that a target names: no link leads out of `root`, its own root.
    pub(super) fn open_inside(&self, root: &Path, path: &str, is_it: impl Fn(&Metadata) -> bool) -> Option<FileBytes> {
        self.map(File::from(place_inside(root_of(root)?, Path::new(path)).ok()?), is_it)
    }

    fn map(&self, place: File, is_it: impl Fn(&Metadata) -> bool) -> Option<FileBytes> {
        let metadata = place.metadata().ok().filter(|metadata| metadata.is_file() && is_it(metadata))?;
        let key = (metadata.dev(), metadata.ino());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(&key) {
            return Some(bytes.clone());
        }
        // The very same file, whatever bears its name by now.
        let own = format!("/proc/self/fd/{}", place.as_raw_fd());
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(own).ok()?;
        let bytes = FileBytes::new(sys::map_file(&file).ok()?);
        known.insert(key, bytes.clone());
        Some(bytes)
    }
}

/// Device and inode of the file at a path in `root`.
pub(super) fn identity(root: OwnedFd, path: &str) -> Option<(u64, u64)> {
    let metadata = File::from(place_inside(root, Path::new(path)).ok()?).metadata().ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// A root to follow paths in.
pub(super) fn root_of(path: &Path) -> Option<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, Mode::empty()).ok()
}

/// A regular file of at most `most` bytes whose path leads nowhere out of `root`, and when it was last changed, in
/// seconds since 1970. It is opened anew by the caller's rights, if `is_it` accepts the name that it has behind all
/// links.
pub(super) fn read_inside(
    root: OwnedFd,
    path: &str,
    most: u64,
    is_it: impl Fn(&str) -> bool,
) -> Option<(Vec<u8>, i64)> {
    let place = File::from(place_inside(root, Path::new(path)).ok()?);
    let metadata = place.metadata().ok().filter(|metadata| metadata.is_file() && metadata.len() <= most)?;
    let own = format!("/proc/self/fd/{}", place.as_raw_fd());
    std::fs::read_link(&own).ok().filter(|name| name.to_str().is_some_and(&is_it))?;
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(own).ok()?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).ok()?;
    Some((bytes, metadata.mtime().max(metadata.ctime())))
}

/// The place of a file in a file system whose root is `root`, followed as a process with that root would.
fn place_inside(root: OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(ResolveFlag::RESOLVE_IN_ROOT);
    match openat2(root.as_fd(), path, how) {
        // Before Linux 5.6, or in a sandbox that does not know the call.
        Err(Errno::ENOSYS | Errno::EPERM) => walk_inside(root, path),
        found => found,
    }
}

/// The same name by name; no link is followed by the kernel.
fn walk_inside(root: OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let names = |path: &Path| -> Vec<OsString> {
        let named = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        });
        named.collect()
    };
    let mut ahead: VecDeque<OsString> = names(path).into();
    let mut way = vec![root];
    let (mut links, mut steps) = (0, 0);
    while let Some(name) = ahead.pop_front() {
        steps += 1;
        if steps > MOST_NAMES {
            return Err(Errno::ENAMETOOLONG);
        }
        if name == ".." {
            way.truncate(way.len().saturating_sub(1).max(1));
            continue;
        }
        let at = way.last().ok_or(Errno::ENOENT)?;
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let next = openat(at, name.as_os_str(), flags, Mode::empty())?;
        let next = File::from(next);
        if !next.metadata().map_err(|_| Errno::ENOENT)?.is_symlink() {
            way.push(next.into());
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::ELOOP);
        }
        let target = readlinkat(next.as_fd(), "")?;
        let target = Path::new(&target);
        if target.is_absolute() {
            way.truncate(1);
        }
        for name in names(target).into_iter().rev() {
            ahead.push_front(name);
        }
    }
    way.pop().ok_or(Errno::ENOENT)
}

/// Whether a file lost bytes while it was read, since the last call: they read as zeros.
pub(crate) fn files_changed() -> bool {
    sys::lost_pages()
}

/// Where a debug file may lie, the surest place first.
pub(super) fn debug_files(build_id: Option<&[u8]>, link: Option<&str>, module_path: &str) -> Vec<String> {
    let mut paths = Vec::new();
    if let Some([first, rest @ ..]) = build_id
        && !rest.is_empty()
    {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        paths.push(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug"));
    }
    // The name is foreign input: a path in it would lead anywhere.
    let link = link.filter(|name| !name.is_empty() && !name.contains('/') && *name != "." && *name != "..");
    if let (Some(name), Some((directory, file))) = (link, module_path.rsplit_once('/')) {
        if name != file {
            paths.push(format!("{directory}/{name}"));
        }
        paths.push(format!("{directory}/.debug/{name}"));
        paths.push(format!("/usr/lib/debug{directory}/{name}"));
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ways to follow a path, by the first bytes of the found file.
    fn found(root: &Path, path: &str) -> [Option<Vec<u8>>; 2] {
        let open = |root: &Path| OwnedFd::from(File::open(root).unwrap());
        let read = |place: OwnedFd| std::fs::read(format!("/proc/self/fd/{}", place.as_raw_fd())).unwrap();
        [
            place_inside(open(root), Path::new(path)).ok().map(read),
            walk_inside(open(root), Path::new(path)).ok().map(read),
        ]
    }

    #[test]
    fn no_link_leads_out_of_a_root() {
        use std::os::unix::fs::symlink;
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        std::fs::create_dir_all(root.join("lib/deep")).unwrap();
        std::fs::write(outside.path().join("secret"), "outside").unwrap();
        std::fs::write(root.join("lib/x.so"), "inside").unwrap();
        symlink(outside.path().join("secret"), root.join("absolute")).unwrap();
        symlink("../secret", root.join("upwards")).unwrap();
        symlink("/lib/deep/../x.so", root.join("own")).unwrap();
        symlink("lib", root.join("folder")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        symlink("/proc/self/root", root.join("magic")).unwrap();
        for path in ["absolute", "upwards", "/upwards", "../secret", "circle", "magic/etc/passwd", "lib/absent"] {
            assert_eq!(found(&root, path), [None, None], "{path}");
        }
        for path in ["/lib/x.so", "own", "folder/x.so", "/../../lib/./x.so", "lib/deep/../../own"] {
            assert_eq!(found(&root, path), [Some(b"inside".to_vec()), Some(b"inside".to_vec())], "{path}");
        }
        // The kernel's own links out of a root are followed by neither.
        assert_eq!(found(Path::new("/proc/self"), "root/etc/passwd"), [None, None]);
    }

    #[test]
    fn only_regular_files_are_opened_and_none_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let disk = Disk::default();
        assert!(disk.open(&pipe, |_| true).is_none() && disk.open(Path::new("/dev/null"), |_| true).is_none());
        assert!(disk.open_inside(folder.path(), "pipe", |_| true).is_none());
        assert!(disk.open(Path::new("/proc/self/exe"), |_| true).is_some_and(|bytes| bytes.starts_with(b"\x7fELF")));
    }

    #[test]
    fn a_file_that_is_cut_while_it_is_mapped_reads_as_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("library");
        // The kernel maps the rest of a cut file in whole pages.
        let page = sys::page_size();
        std::fs::write(&path, vec![1; 3 * page]).unwrap();
        let bytes = Disk::default().open(&path, |_| true).unwrap();
        assert_eq!(bytes[2 * page], 1);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
        let read = |at: usize| std::hint::black_box(&bytes)[at];
        assert_eq!((read(0), read(page), read(3 * page - 1)), (1, 0, 0));
        assert!(files_changed());
    }

    #[test]
    fn places_of_debug_files() {
        assert_eq!(
            debug_files(Some(&[0xab, 1, 2]), Some("libx.so.debug"), "/opt/lib/libx.so"),
            [
                "/usr/lib/debug/.build-id/ab/0102.debug",
                "/opt/lib/libx.so.debug",
                "/opt/lib/.debug/libx.so.debug",
                "/usr/lib/debug/opt/lib/libx.so.debug",
            ]
        );
        assert!(debug_files(Some(&[]), Some("../../etc/passwd"), "/a/b").is_empty());
        assert!(debug_files(None, Some("x"), "b").is_empty());
    }
}
