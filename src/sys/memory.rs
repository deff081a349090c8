//! Memory of other processes and of files: pieces that are read in one call, maps, and pages that a file loses while it is mapped.
//!
//! In: addresses and lengths. Out: bytes. What they mean is not known here.

use std::fs::File;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memmap2::{Mmap, MmapOptions};
use nix::errno::Errno;
use nix::libc;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// A piece of the target's memory: first address and length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// First address.
    pub(crate) start: u64,
    /// Length in bytes.
    pub(crate) length: usize,
}

/// As many spans as one call takes (IOV_MAX).
pub(crate) const SPANS_PER_CALL: usize = 1024;

/// Read `spans` (at most [`SPANS_PER_CALL`]) of the process of task `tid`, one after the other, into `buffer`; the
/// number of bytes before the first that faults.
pub(crate) fn read_spans(tid: i32, spans: &[Span], buffer: &mut [u8]) -> Result<usize, Errno> {
    let remote: Vec<RemoteIoVec> = spans
        .iter()
        .take(SPANS_PER_CALL)
        .map(|span| RemoteIoVec { base: span.start as usize, len: span.length })
        .collect();
    process_vm_readv(Pid::from_raw(tid), &mut [IoSliceMut::new(buffer)], &remote)
}

/// Map a regular file for reading.
pub(crate) fn map_file(file: &File) -> std::io::Result<Mmap> {
    survive_lost_pages();
    // SAFETY: the mapping is private and read-only. Should someone truncate the file meanwhile, what is lost reads as zeros
    // (see `survive_lost_pages`); what changes is only ever copied out and parsed with every length checked.
    unsafe { MmapOptions::new().map_copy_read_only(file) }
}

/// The size of the kernel's pages: its unit of mapping, protection and reports. x86-64 has 4 KiB; on 64-bit Arm it is
/// one of the powers of two from that to 64 KiB, as the kernel was built.
pub(crate) fn page_size() -> usize {
    const LEAST: usize = 4096;
    let told = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| usize::try_from(size).ok());
    told.filter(|size| size.is_power_of_two()).unwrap_or(LEAST).max(LEAST)
}

/// Whether a page of a file was missing when it was read, see [`survive_lost_pages`].
static LOST_PAGES: AtomicBool = AtomicBool::new(false);
/// The size of the memory lost in one fault: a signal handler must not query it.
static LOST_PAGE_SIZE: AtomicUsize = AtomicUsize::new(4096);

/// Whether that happened since the last call.
pub(crate) fn lost_pages() -> bool {
    LOST_PAGES.swap(false, Ordering::Relaxed)
}

/// From now on a mapped file that others cut or overwrite in place, or that its file system cannot give any more, reads as zeros
/// there: the kernel sends SIGBUS, whose default would end lockscope.
pub(crate) fn survive_lost_pages() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        LOST_PAGE_SIZE.store(page_size(), Ordering::Relaxed);
        // SAFETY: sigaction is plain data for which all zeroes is a valid value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = put_zeros as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the handler makes system calls and stores an atomic only, which a signal handler may do.
        unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) };
    });
}

extern "C" fn put_zeros(_signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    /// A page of a file is not there (asm-generic/siginfo.h).
    const BUS_ADRERR: i32 = 2;
    // SAFETY: the kernel gives a valid siginfo_t with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let size = LOST_PAGE_SIZE.load(Ordering::Relaxed);
    // SAFETY: the page faulted because nothing is behind it (only pages of files raise this code), so nothing is lost by putting
    // zeros there; it stays readable as it was.
    if code == BUS_ADRERR && unsafe { put_zero_page(address, size) } {
        LOST_PAGES.store(true, Ordering::Relaxed);
        return;
    }
    // SAFETY: gives the signal its default action, which the instruction meets when it runs again.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}

/// Put zeros where the page of this size with `address` is; whether that could be done. It makes one system call, and no page of
/// another size can be put anywhere but by chance: the kernel refuses an address that is not a multiple of its own.
///
/// # Safety
///
/// Nothing in that page is needed any more.
unsafe fn put_zero_page(address: usize, size: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let page = std::ptr::without_provenance_mut(address & !(size - 1));
    // SAFETY: as the caller says.
    unsafe { libc::mmap(page, size, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED }
}

#[cfg(test)]
mod tests {
    use super::super::shared::SharedArea;
    use super::*;

    /// As a kernel with pages of 64 KiB loses them, wherever inside the access was.
    #[test]
    fn a_lost_page_is_replaced_whole_and_no_other() {
        const LARGEST: usize = 64 << 10;
        let area = SharedArea::new(4 * LARGEST).expect("memory");
        let start = area.start.as_ptr() as usize;
        let page = start.next_multiple_of(LARGEST) + LARGEST - start;
        let byte = |offset: usize| area.byte(offset).expect("inside").load(Ordering::Relaxed);
        for offset in [page - 1, page, page + LARGEST - 1, page + LARGEST] {
            area.byte(offset).expect("inside").store(7, Ordering::Relaxed);
        }
        // SAFETY: the page lies within the area, and only these bytes of it are used.
        assert!(unsafe { put_zero_page(start + page + 0x5123, LARGEST) });
        assert_eq!([page - 1, page, page + LARGEST - 1, page + LARGEST].map(byte), [7, 0, 0, 7]);
        // SAFETY: nothing is replaced: that is no address of a page.
        assert!(page_size().is_power_of_two() && !unsafe { put_zero_page(start + page_size() / 2, page_size() / 2) });
    }
}
