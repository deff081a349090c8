//! The files that a live process maps, and the debug files that belong to them.
//!
//! In: mappings, build-ids and names. Out: [`FileBytes`], kept by device and inode. The target's own view of the file
//! system comes first, lockscope's second. Only regular files are opened, and nothing in them is interpreted here.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::sys;
use crate::image::{FileBytes, Files, Mapping};

/// [`Files`] of a live process.
#[derive(Debug)]
pub(super) struct LiveFiles {
    /// The directory of one of the process's living threads in /proc.
    directory: PathBuf,
    known: Mutex<HashMap<(u64, u64), FileBytes>>,
}

impl LiveFiles {
    /// The files of the process whose directory in /proc is `directory`.
    pub(super) fn new(directory: PathBuf) -> Self {
        LiveFiles { directory, known: Mutex::new(HashMap::new()) }
    }

    /// A path of the target's, as lockscope can open it.
    fn in_target(&self, path: &str) -> PathBuf {
        self.directory.join("root").join(path.trim_start_matches('/'))
    }

    /// Map the file, if it is a regular one and `is_it` says that it is the right one.
    fn open(&self, path: &Path, is_it: impl Fn(&std::fs::Metadata) -> bool) -> Option<FileBytes> {
        // Looked at before it is opened: to open a device or a pipe can have effects.
        std::fs::metadata(path).ok().filter(|metadata| metadata.is_file() && is_it(metadata))?;
        let file = File::open(path).ok()?;
        let metadata = file.metadata().ok().filter(|metadata| metadata.is_file() && is_it(metadata))?;
        let key = (metadata.dev(), metadata.ino());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = known.get(&key) {
            return Some(bytes.clone());
        }
        let bytes = FileBytes::new(sys::map_file(&file).ok()?);
        known.insert(key, bytes.clone());
        Some(bytes)
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
        self.open(&self.directory.join(link), |_| true)
            // Some file systems (btrfs, overlayfs) show one device in maps and another in stat; path and inode in the
            // target's own root are enough there, while on the host another file may have the same inode number.
            .or_else(|| self.open(&self.in_target(path), same_inode))
            .or_else(|| {
                self.open(Path::new(path), |metadata| same_inode(metadata) && device(metadata) == mapping.device)
            })
    }

    fn debug_file(&self, build_id: Option<&[u8]>, link: Option<&str>, module_path: &str) -> Option<FileBytes> {
        let candidates = candidates(build_id, link, module_path);
        let in_target = candidates.iter().find_map(|path| self.open(&self.in_target(path), |_| true));
        in_target.or_else(|| candidates.iter().find_map(|path| self.open(Path::new(path), |_| true)))
    }
}

/// Where a debug file may lie, the surest place first.
fn candidates(build_id: Option<&[u8]>, link: Option<&str>, module_path: &str) -> Vec<String> {
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
    use crate::image::live::proc_fs;

    #[test]
    fn places_of_debug_files() {
        assert_eq!(
            candidates(Some(&[0xab, 1, 2]), Some("libx.so.debug"), "/opt/lib/libx.so"),
            [
                "/usr/lib/debug/.build-id/ab/0102.debug",
                "/opt/lib/libx.so.debug",
                "/opt/lib/.debug/libx.so.debug",
                "/usr/lib/debug/opt/lib/libx.so.debug",
            ]
        );
        assert!(candidates(Some(&[]), Some("../../etc/passwd"), "/a/b").is_empty());
        assert!(candidates(None, Some("x"), "b").is_empty());
    }

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
