//! The files that a live process maps, and separate debug files, mapped into lockscope.
//!
//! In: a mapping, or a build-id and a debug link. Out: bytes. The very inode that the target maps is opened, through
//! `map_files` also when it was deleted or replaced, so that a decoy at the same path is never read.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::sys::stat::{major, minor};

use super::sys;
use crate::image::{FileBytes, Files, Mapping};

type FileKey = ((i32, i32), u64);

/// See the module's page.
#[derive(Debug)]
pub(crate) struct LiveFiles {
    /// `/proc/PID` or, for a zombie leader, `/proc/PID/task/TID`.
    directory: PathBuf,
    cache: Mutex<HashMap<FileKey, Option<FileBytes>>>,
}

impl LiveFiles {
    pub(crate) fn new(directory: PathBuf) -> LiveFiles {
        LiveFiles { directory, cache: Mutex::default() }
    }

    fn open(&self, mapping: &Mapping) -> Option<FileBytes> {
        let path = mapping.path.as_deref()?;
        let name = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
        let inside = self.directory.join("root").join(path.trim_start_matches('/'));
        [self.directory.join(name), inside, PathBuf::from(path)]
            .iter()
            .filter(|candidate| is_inode(candidate, mapping))
            .find_map(|candidate| load(candidate))
    }
}

/// Whether `path` leads to the inode that is mapped. Overlay file systems show another device in maps than in stat:
/// then the inode number alone decides.
fn is_inode(path: &Path, mapping: &Mapping) -> bool {
    let Ok(data) = fs::metadata(path) else { return false };
    let device = (major(data.dev()) as i32, minor(data.dev()) as i32);
    let through_link = path.components().any(|c| c.as_os_str() == "map_files");
    data.is_file() && (through_link || (data.ino() == mapping.inode && (device == mapping.device || !mapping.deleted)))
}

fn load(path: &Path) -> Option<FileBytes> {
    let file = File::open(path).ok()?;
    let data = file.metadata().ok()?;
    if !data.is_file() || data.len() == 0 {
        return None;
    }
    sys::map_file(&file).ok().map(FileBytes::new)
}

impl Files for LiveFiles {
    fn mapped(&self, mapping: &Mapping) -> Option<FileBytes> {
        if !mapping.is_file() {
            return None;
        }
        let key = (mapping.device, mapping.inode);
        if let Some(known) = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let found = self.open(mapping);
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).insert(key, found.clone());
        found
    }

    fn debug_file(&self, build_id: Option<&[u8]>, link: Option<&str>, module_path: &str) -> Option<FileBytes> {
        let mut names = Vec::new();
        if let Some([first, rest @ ..]) = build_id {
            let rest: String = rest.iter().map(|b| format!("{b:02x}")).collect();
            names.push(format!("usr/lib/debug/.build-id/{first:02x}/{rest}.debug"));
        }
        if let (Some(link), Some(folder)) = (link, Path::new(module_path).parent()) {
            let folder = folder.to_string_lossy();
            let folder = folder.trim_start_matches('/');
            names.extend([
                format!("{folder}/{link}"),
                format!("{folder}/.debug/{link}"),
                format!("usr/lib/debug/{folder}/{link}"),
            ]);
        }
        [self.directory.join("root"), PathBuf::from("/")]
            .iter()
            .flat_map(|root| names.iter().map(|name| root.join(name)))
            .filter(|path| path.to_string_lossy() != module_path)
            .find_map(|path| load(&path))
    }
}
