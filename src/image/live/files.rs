//! The files that a live process maps, and the debug files that belong to them.
//!
//! In: mappings, build-ids and names. Out: [`FileBytes`], kept by device and inode. Paths come from the target, and are followed in
//! its own root only, never on the host: a link in a container would else open whatever it names here. Only regular files are
//! opened, and nothing in them is interpreted.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::answering::{Answering, Copied, FileId};
use super::leases::Leases;
use super::sources;
use crate::image::disk::{self, Disk};
use crate::image::{FileBytes, Files, Mapping, SourceLines};

/// [`Files`] of a live process.
#[derive(Debug)]
pub(super) struct LiveFiles {
    /// The directory of one of the process's living threads in /proc.
    directory: PathBuf,
    /// Processes of one look map a file once.
    disk: Arc<Disk>,
    /// Those of a sample are read once.
    leases: Arc<Leases>,
    answering: Answering,
    /// Files of file systems that may fall silent, by device and inode.
    copies: Mutex<HashMap<FileId, FileBytes>>,
}

impl LiveFiles {
    /// The files of the process whose directory in /proc is `directory`.
    pub(super) fn new(directory: PathBuf, disk: Arc<Disk>, leases: Arc<Leases>) -> Self {
        let answering = Answering::new(&directory);
        LiveFiles { directory, disk, leases, answering, copies: Mutex::default() }
    }

    /// The target's own root.
    fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    /// A path in the target's own root. The kernel writes those of a process after chroot(2) as lockscope sees them.
    fn inside<'p>(&self, path: &'p str) -> &'p str {
        let seen = std::fs::read_link(self.root()).ok();
        let seen = seen.as_deref().and_then(|seen| seen.to_str()).filter(|seen| *seen != "/");
        seen.and_then(|seen| path.strip_prefix(seen)).filter(|rest| rest.starts_with('/')).unwrap_or(path)
    }
}

/// Whether the program of the process whose directory in /proc this is can be opened without waiting for ever.
pub(super) fn program_answers(directory: &Path) -> bool {
    let files = LiveFiles::new(directory.to_owned(), Arc::default(), Arc::new(Leases::unread()));
    let Ok(program) = std::fs::read_link(directory.join("exe")) else { return true };
    program.to_str().is_some_and(|path| files.answering.may_open(&files.root(), files.inside(path)))
}

impl Files for LiveFiles {
    fn mapped(&self, mapping: &Mapping) -> Option<FileBytes> {
        if !mapping.is_file() {
            return None;
        }
        let path = mapping.path.as_deref()?;
        if !self.answering.may_map(&self.root(), self.inside(path), mapping.device) {
            return None;
        }
        let known = (mapping.device, mapping.inode);
        let copies = || self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = copies().get(&known) {
            return Some(bytes.clone());
        }
        match self.answering.copied(&self.root(), self.inside(path), Some(known)) {
            Copied::Whole(bytes) => {
                copies().insert(known, bytes.clone());
                return Some(bytes);
            }
            Copied::Nothing => return None,
            Copied::Not => {}
        }
        // Works for deleted files too, but needs privileges.
        let link = format!("map_files/{:x}-{:x}", mapping.start.0, mapping.end.0);
        let same_inode = |metadata: &std::fs::Metadata| metadata.ino() == mapping.inode;
        self.disk
            .open(&self.directory.join(link), |_| true)
            // Some file systems (btrfs, overlayfs) show one device in maps and another in stat: path and inode in the target's own
            // root are enough.
            .or_else(|| self.disk.open_inside(&self.root(), self.inside(path), same_inode))
    }

    fn source(&self, name: &str, lines: &BTreeSet<u32>) -> Option<SourceLines> {
        sources::read(&self.directory, |path| self.inside(path).to_owned(), &self.answering, &self.leases, name, lines)
    }

    fn debug_file(&self, build_id: Option<&[u8]>, link: Option<&str>, module_path: &str) -> Option<FileBytes> {
        let candidates = disk::debug_files(build_id, link, self.inside(module_path));
        let root = self.root();
        let mut answering = candidates.iter().filter(|path| self.answering.may_open(&root, path));
        answering.find_map(|path| match self.answering.copied(&root, path, None) {
            Copied::Whole(bytes) => Some(bytes),
            Copied::Nothing => None,
            Copied::Not => self.disk.open_inside(&root, path, |_| true),
        })
    }
}

/// Files as lockscope itself sees them: for processes that have ended.
pub(crate) fn own_files() -> Arc<dyn Files> {
    Arc::new(LiveFiles::new(PathBuf::from("/proc/self"), Arc::default(), Arc::new(Leases::unread())))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::image::live::proc_fs;

    #[test]
    fn own_program_by_its_mapping() {
        let maps = proc_fs::mappings(Path::new("/proc/self")).expect("own maps");
        let files = LiveFiles::new(PathBuf::from("/proc/self"), Arc::default(), Arc::new(Leases::unread()));
        let mapping = maps.iter().find(|mapping| mapping.is_file() && mapping.execute).expect("own text");
        assert!(files.mapped(mapping).expect("own program").starts_with(b"\x7fELF"));
        let other = Mapping { inode: mapping.inode + 1, start: crate::image::Addr(1), ..mapping.clone() };
        assert!(files.mapped(&other).is_none(), "another inode is another file");
        let device = Mapping { path: Some("/dev/null".to_owned()), ..other };
        assert!(files.mapped(&device).is_none());
    }
}
