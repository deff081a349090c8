//! Which C library a process runs on, and how that describes a thread to itself.
//!
//! In: a process. Out: [`CLibrary`], and where its thread descriptor has the id that locks name their owners by.
//! The offsets are the machine's ([`Architecture::descriptor_layout`]).

use crate::arch::Architecture;
use crate::image::{Addr, Memory, MemoryExt, ProcessImage};

/// Which C library a process runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CLibrary {
    /// GNU libc, or unknown: its rules check every structure themselves.
    Glibc,
    /// musl.
    Musl,
}

/// Where `library` keeps a thread's id.
pub(crate) fn tid_offset(architecture: Architecture, library: CLibrary) -> u64 {
    let layout = architecture.descriptor_layout();
    match library {
        CLibrary::Glibc => layout.glibc_tid,
        CLibrary::Musl => layout.musl_tid,
    }
}

/// Whether `pd` is a thread descriptor: its self pointers are right (libc.md, section 3), or it has an
/// id where it has none.
pub(crate) fn is_pthread(architecture: Architecture, memory: &dyn Memory, pd: Addr, library: CLibrary) -> bool {
    let layout = architecture.descriptor_layout();
    let at = match library {
        CLibrary::Glibc => layout.glibc_self,
        CLibrary::Musl => Some(layout.musl_self),
    };
    let is_own = match at {
        Some(at) => memory.u64(pd + at).is_ok_and(|word| word == pd.0),
        None => memory.i32(pd + layout.glibc_tid).is_ok_and(|tid| tid > 0),
    };
    !pd.is_null() && is_own
}

/// Whether a descriptor of glibc lies at `pd`, without help from a register. Either it points to itself or, on an
/// architecture where none does, it is in the list of stacks. The links of that list are right before `tid`
/// (nptl/descr.h, the same from 2.4 to 2.43), and the next one leads back.
pub(crate) fn is_descriptor(architecture: Architecture, memory: &dyn Memory, pd: Addr) -> bool {
    const LINKS: u64 = 16;
    const BACK: u64 = 8;
    let layout = architecture.descriptor_layout();
    let own = pd + (layout.glibc_tid - LINKS);
    let points_to_itself = layout.glibc_self.is_some() && is_pthread(architecture, memory, pd, CLibrary::Glibc);
    let is_listed = || memory.pointer(own).is_ok_and(|next| next != own && memory.pointer(next + BACK) == Ok(own));
    !pd.is_null() && (points_to_itself || is_listed())
}

/// musl is known by its loader, or in a static program by where the thread id stands.
pub(crate) fn of_process(image: &ProcessImage) -> CLibrary {
    let musl_name = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.starts_with("ld-musl") || name.starts_with("libc.musl")
    };
    if image.mappings.iter().any(|m| m.path.as_deref().is_some_and(musl_name)) {
        return CLibrary::Musl;
    }
    let (architecture, memory) = (image.architecture, &*image.memory);
    let word_is_tid = |library: CLibrary| {
        image.threads.iter().any(|t| {
            t.registers.is_some_and(|r| {
                r.thread_descriptor().is_some_and(|pd| {
                    is_pthread(architecture, memory, pd, library)
                        && memory.i32(pd + tid_offset(architecture, library)).is_ok_and(|tid| tid == t.ns_tid)
                })
            })
        })
    };
    if !word_is_tid(CLibrary::Glibc) && word_is_tid(CLibrary::Musl) { CLibrary::Musl } else { CLibrary::Glibc }
}
