//! Files on this machine's disk: programs, libraries, debug files.
//!
//! In: paths. Out: [`FileBytes`], mapped, each file once. Only regular files are opened; nothing in them is interpreted
//! here, and whether a file is the right one is the caller's question.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::FileBytes;
use crate::sys;

/// Opened files by device and inode.
#[derive(Debug, Default)]
pub(super) struct Disk {
    known: Mutex<HashMap<(u64, u64), FileBytes>>,
}

impl Disk {
    /// Map the file, if it is a regular one and `is_it` says that it is the right one.
    pub(super) fn open(&self, path: &Path, is_it: impl Fn(&Metadata) -> bool) -> Option<FileBytes> {
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
