//! The files that a live process maps, and the debug files that belong to them.
//!
//! In: mappings, build-ids and names. Out: [`FileBytes`], kept by device and inode. The target's own view of the file
//! system comes first, lockscope's second. Only regular files are opened, and nothing in them is interpreted here.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::image::disk::{self, Disk};
use crate::image::{FileBytes, Files, Mapping};

/// [`Files`] of a live process.
#[derive(Debug)]
pub(super) struct LiveFiles {
    /// The directory of one of the process's living threads in /proc.
    directory: PathBuf,
    disk: Disk,
}

impl LiveFiles {
    /// The files of the process whose directory in /proc is `directory`.
    pub(super) fn new(directory: PathBuf) -> Self {
        LiveFiles { directory, disk: Disk::default() }
    }

    /// A path of the target's, as lockscope can open it.
    fn in_target(&self, path: &str) -> PathBuf {
        self.directory.join("root").join(path.trim_start_matches('/'))
    }
}

/// The device number as maps prints it.
fn device(metadata: &std::fs::Metadata) -> (i32, i32) {
    let number = metadata.dev();
    (nix::sys::stat::major(number) as i32, nix::sys::stat::minor(number) as i32)
}

impl Files for LiveFiles {
    fn mapped(&self, mapping: &Mapping) -> Option<FileBytes> {
        if !mapping.is_file() {
            return None;
        }
        let path = mapping.path.as_deref()?;
        // Works for deleted files too, but needs privileges.
        let link = format!("map_files/{:x}-{:x}", mapping.start.0, mapping.end.0);
        let same_inode = |metadata: &std::fs::Metadata| metadata.ino() == mapping.inode;
        self.disk
            .open(&self.directory.join(link), |_| true)
            // Some file systems (btrfs, overlayfs) show one device in maps and another in stat; path and inode in the
            // target's own root are enough there, while on the host another file may have the same inode number.
            .or_else(|| self.disk.open(&self.in_target(path), same_inode))
            .or_else(|| {
                self.disk.open(Path::new(path), |metadata| same_inode(metadata) && device(metadata) == mapping.device)
            })
    }

    fn debug_file(&self, build_id: Option<&[u8]>, link: Option<&str>, module_path: &str) -> Option<FileBytes> {
        let candidates = disk::debug_files(build_id, link, module_path);
        let in_target = candidates.iter().find_map(|path| self.disk.open(&self.in_target(path), |_| true));
        in_target.or_else(|| candidates.iter().find_map(|path| self.disk.open(Path::new(path), |_| true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::live::proc_fs;

    #[test]
    fn own_program_by_its_mapping() {
        let maps = proc_fs::mappings(Path::new("/proc/self")).expect("own maps");
        let files = LiveFiles::new(PathBuf::from("/proc/self"));
        let mapping = maps.iter().find(|mapping| mapping.is_file() && mapping.execute).expect("own text");
        assert!(files.mapped(mapping).expect("own program").starts_with(b"\x7fELF"));
        let other = Mapping { inode: mapping.inode + 1, start: crate::image::Addr(1), ..mapping.clone() };
        assert!(files.mapped(&other).is_none(), "another inode is another file");
        let device = Mapping { path: Some("/dev/null".to_owned()), ..other };
        assert!(files.mapped(&device).is_none());
    }
}
