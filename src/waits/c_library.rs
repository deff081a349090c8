//! Which C library a process runs on, and how that describes a thread to itself.
//!
//! In: a process. Out: [`CLibrary`], and where its thread descriptor has the id that locks name their owners by.
//! Sources of the offsets: libc.md sections 3 and 5, measured on glibc 2.27 to 2.43 and musl 1.2.3.

use crate::image::{Addr, Memory, MemoryExt, ProcessImage};

/// How the names of the C library's modules begin.
const C_LIBRARY: &[&str] = &["libc.so", "libc-", "libpthread", "ld-linux", "ld-musl", "libc.musl"];
/// Whether a module of this name is the C library's.
pub fn is_c_library(module: &str) -> bool {
    C_LIBRARY.iter().any(|prefix| module.starts_with(prefix))
}

/// Which C library a process runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CLibrary {
    /// GNU libc, or unknown: its rules check every structure themselves.
    Glibc,
    /// musl.
    Musl,
}

/// `struct pthread` is its own thread control block: the word here points to itself (tcbhead_t.self).
pub const PTHREAD_SELF: u64 = 0x10;
/// `pd->tid` of glibc: the id that it writes into owners, in the PID namespace of the process.
pub const PTHREAD_TID: u64 = 0x2d0;
/// `tid` of musl.
pub const MUSL_TID: u64 = 48;
/// Where `library` keeps a thread's id.
pub fn tid_offset(library: CLibrary) -> u64 {
    match library {
        CLibrary::Glibc => PTHREAD_TID,
        CLibrary::Musl => MUSL_TID,
    }
}

/// Whether `fs` points to a thread descriptor: its self pointers are right (libc.md, section 3; musl keeps one
/// at offset 0 only).
pub fn is_pthread(memory: &dyn Memory, fs: Addr, library: CLibrary) -> bool {
    let at = match library {
        CLibrary::Glibc => PTHREAD_SELF,
        CLibrary::Musl => 0,
    };
    !fs.is_null() && memory.u64(fs + at).is_ok_and(|word| word == fs.0)
}

/// musl is known by its loader, or in a static program by where the thread id stands.
pub fn of_process(image: &ProcessImage) -> CLibrary {
    let musl_name = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.starts_with("ld-musl") || name.starts_with("libc.musl")
    };
    if image.mappings.iter().any(|m| m.path.as_deref().is_some_and(musl_name)) {
        return CLibrary::Musl;
    }
    let memory = &*image.memory;
    let word_is_tid = |library: CLibrary| {
        image.threads.iter().any(|t| {
            t.registers.is_some_and(|r| {
                is_pthread(memory, r.fs_base, library)
                    && memory.i32(r.fs_base + tid_offset(library)).is_ok_and(|tid| tid == t.ns_tid)
            })
        })
    };
    if !word_is_tid(CLibrary::Glibc) && word_is_tid(CLibrary::Musl) { CLibrary::Musl } else { CLibrary::Glibc }
}
