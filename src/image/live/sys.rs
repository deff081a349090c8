//! All the `unsafe` of the crate: mapping a file.
//!
//! Everything else that touches another process goes through nix's safe wrappers.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::Mmap;

/// Map a file for reading.
pub(crate) fn map_file(file: &File) -> io::Result<Mmap> {
    // SAFETY: the mapping is private and only read. A file that is truncated meanwhile raises SIGBUS; the files
    // mapped here are programs and libraries, which package managers replace by renaming, not by truncation.
    unsafe { Mmap::map(file) }
}
