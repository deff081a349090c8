//! Lines of the source files of a live process.
//!
//! In: the name that code has for a file. Out: [`SourceLines`]. The name is the target's claim, and lockscope may have
//! more rights than the target. So a file is read only under these conditions:
//! - It is in the target's own root, its name is one of source, and it is a regular file.
//! - The kernel allows it to the ids of the target without any capability.
//! - Its opening brings no signal to the holder of a lease.
//!
//! A target cannot make lockscope print a file that the target could not read itself. Files of programs and of other
//! machines (FUSE, NFS) are not read: they may never answer.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::answering::Answering;
use super::leases::Leases;
use super::proc_fs::{self, ProcFs};
use crate::image::disk;
use crate::image::source::{SourceLines, is_source, lines_of};
use crate::limits::image::LARGEST_SOURCE;
use crate::sys;

/// Ids by which a process is let at files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ids {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

/// Lines of the file that code of the process calls `name`. `directory` is its folder in /proc, `inside` gives a path in its root.
pub(super) fn read(
    directory: &Path,
    inside: impl Fn(&str) -> String,
    answering: &Answering,
    leases: &Leases,
    name: &str,
    wanted: &BTreeSet<u32>,
) -> Option<SourceLines> {
    if !is_source(name) {
        return None;
    }
    let path = match name.starts_with('/') {
        true => name.to_owned(),
        false => {
            let working = std::fs::read_link(directory.join("cwd")).ok()?;
            format!("{}/{name}", inside(working.to_str()?).trim_end_matches('/'))
        }
    };
    let own_root = directory.join("root");
    if answering.is_foreign_path(&path)
        || disk::identity(disk::root_of(&own_root)?, &path).is_some_and(|(device, inode)| leases.has(device, inode))
        || !answering.may_open(&own_root, &path)
    {
        return None;
    }
    let ids = ids(&proc_fs::text(&directory.join("status"))?)?;
    let root = disk::root_of(&own_root)?;
    let (bytes, changed) =
        sys::as_user(ids.user, ids.group, &ids.groups, || disk::read_inside(root, &path, LARGEST_SOURCE, is_source))?;
    let is_newer = began(directory).is_none_or(|began| changed > began);
    Some(SourceLines { name: name.to_owned(), path, is_newer, lines: lines_of(&bytes, wanted)? })
}

/// From the text of its status: the last of the user and group ids is for files (proc_pid_status(5)).
fn ids(status: &str) -> Option<Ids> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let last = |name: &str| field(name)?.split_whitespace().nth(3)?.parse().ok();
    let groups = field("Groups:")?.split_whitespace().map(|group| group.parse().ok()).collect::<Option<_>>()?;
    Some(Ids { user: last("Uid:")?, group: last("Gid:")?, groups })
}

/// When the process began, in seconds since 1970, rounded up.
fn began(directory: &Path) -> Option<i64> {
    const TICKS_A_SECOND: u64 = 100;
    let started = proc_fs::stat(directory)?.start_ticks / TICKS_A_SECOND;
    let up = ProcFs::new(directory.parent()?).uptime_ms()? / 1000;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
    i64::try_from(now.checked_sub(up.checked_sub(started)?)? + 1).ok()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn read_of(process: u32, name: &str) -> Option<SourceLines> {
        let directory = PathBuf::from(format!("/proc/{process}"));
        read(&directory, str::to_owned, &Answering::new(&directory), &Leases::unread(), name, &BTreeSet::from([1]))
    }

    fn read_own(name: &str) -> Option<SourceLines> {
        read_of(std::process::id(), name)
    }

    #[test]
    fn source_that_changed_after_the_process_began_is_newer() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("a.py");
        std::fs::write(&source, "first\nsecond\n").unwrap();
        let mut later = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let is_newer = || read_of(later.id(), source.to_str().unwrap()).map(|read| read.is_newer);
        assert_eq!(is_newer(), Some(false));
        // When its names or rights changed counts as well: it cannot be set, so the time of its bytes is set ahead.
        let hour = SystemTime::now() + std::time::Duration::from_secs(3600);
        std::fs::File::options().append(true).open(&source).unwrap().set_modified(hour).unwrap();
        assert_eq!(is_newer(), Some(true));
        drop(later.stdin.take());
        later.wait().unwrap();
    }

    #[test]
    fn source_is_read_by_its_name_and_what_is_not_source_never() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["a.py", "secret"] {
            std::fs::write(place(name), "first\nsecond\n").unwrap();
        }
        assert_eq!(read_own(&place("a.py")).expect("own source").lines, [(1, "first".to_owned())]);
        assert_eq!(read_own(&place("secret")), None);
        std::os::unix::fs::symlink(place("secret"), place("link")).unwrap();
        std::os::unix::fs::symlink(place("secret"), place("link.py")).unwrap();
        for link in ["link", "link.py"] {
            assert_eq!(read_own(&place(link)), None, "{link}");
        }
        nix::unistd::mkfifo(place("pipe.py").as_str(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(read_own(&place("pipe.py")), None);
    }

    #[test]
    fn what_the_target_may_not_read_is_not_read_though_lockscope_may() {
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.path().join("private.py");
        std::fs::write(&path, "secret\n").unwrap();
        let as_nobody = || {
            let root = disk::root_of(Path::new("/")).unwrap();
            sys::as_user(65534, 65534, &[], || disk::read_inside(root, path.to_str().unwrap(), 100, is_source))
        };
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(as_nobody(), None);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(as_nobody().map(|(bytes, _)| bytes), Some(b"secret\n".to_vec()));
        // Nothing of it stays: this thread has its own rights.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(std::fs::read(&path).is_ok());
        assert_eq!(sys::as_user(0, 0, &[], || std::fs::read(&path).ok()), Some(b"secret\n".to_vec()));
    }

    #[test]
    fn ids_for_files_are_the_last_of_each_line() {
        let text = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \n";
        assert_eq!(ids(text), Some(Ids { user: 4, group: 8, groups: vec![9, 10] }));
        assert_eq!(ids("Uid:\t1\n"), None);
    }
}
