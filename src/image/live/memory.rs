//! Memory of a live process: what was copied under the stop, and behind it the running process.
//!
//! In: ranges copied under the stop, the map of the address space. Out: bytes. A page that was not copied is read
//! from the process as it runs on; if it can be written, it is noted as a *late read*, so that the next look copies
//! it under the stop. Device mappings are never read: reading a GPU's registers has effects.

use std::collections::{BTreeSet, HashMap};
use std::io::IoSliceMut;
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use crate::image::{Addr, Fault, Mapping, Memory};

/// Size of a page, in bytes.
pub(crate) const PAGE: u64 = 4096;

/// The kernel's limit of pieces in one call (IOV_MAX).
const MOST_PIECES: usize = 1024;

/// The page that holds `address`.
pub(crate) fn page_of(address: Addr) -> u64 {
    address.0 & !(PAGE - 1)
}

/// One copied range.
#[derive(Debug, Clone)]
pub(crate) struct Copied {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

type Page = Result<Arc<[u8]>, Fault>;

/// See the module's page.
#[derive(Debug)]
pub(crate) struct LiveMemory {
    pid: Pid,
    mappings: Vec<Mapping>,
    /// In order of address, not overlapping.
    copied: Vec<Copied>,
    pages: Mutex<HashMap<u64, Page>>,
    late: Mutex<BTreeSet<u64>>,
}

impl LiveMemory {
    pub(crate) fn new(pid: i32, mappings: Vec<Mapping>, mut copied: Vec<Copied>) -> LiveMemory {
        copied.sort_by_key(|c| c.start);
        LiveMemory { pid: Pid::from_raw(pid), mappings, copied, pages: Mutex::default(), late: Mutex::default() }
    }

    /// Pages of writable memory that were read after the release.
    pub(crate) fn late(&self) -> BTreeSet<u64> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn copied(&self, address: Addr) -> Option<&[u8]> {
        let after = self.copied.partition_point(|c| c.start <= address.0);
        let range = self.copied[..after].last()?;
        range.bytes.get(usize::try_from(address.0 - range.start).ok()?..).filter(|rest| !rest.is_empty())
    }

    fn running(&self, page: u64) -> Page {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = pages.get(&page) {
            return known.clone();
        }
        let found = self.fetch(page);
        pages.insert(page, found.clone());
        found
    }

    fn fetch(&self, page: u64) -> Page {
        let address = Addr(page);
        let after = self.mappings.partition_point(|m| m.start <= address);
        let mapping = self.mappings[..after].last().filter(|m| m.contains(address));
        match mapping {
            None => return Err(Fault::Unmapped(address)),
            Some(mapping) if !may_read(mapping) => return Err(Fault::Denied(address)),
            Some(mapping) if mapping.write => {
                self.late.lock().unwrap_or_else(PoisonError::into_inner).insert(page);
            }
            Some(_) => {}
        }
        let mut bytes = vec![0; PAGE as usize];
        let local = &mut [IoSliceMut::new(&mut bytes)];
        match process_vm_readv(self.pid, local, &[RemoteIoVec { base: page as usize, len: PAGE as usize }]) {
            Ok(n) if n > 0 => {
                bytes.truncate(n);
                Ok(bytes.into())
            }
            Err(Errno::ESRCH) => Err(Fault::Gone(address)),
            _ => Err(Fault::Denied(address)),
        }
    }
}

impl Memory for LiveMemory {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let page;
        let bytes: &[u8] = match self.copied(address) {
            Some(bytes) => bytes,
            None => {
                page = self.running(page_of(address))?;
                page.get((address.0 % PAGE) as usize..).filter(|rest| !rest.is_empty()).ok_or(Fault::Denied(address))?
            }
        };
        let length = bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&bytes[..length]);
        Ok(length)
    }
}

/// Whether a mapping may be read at all: never a device's registers or a driver's buffers.
pub(crate) fn may_read(mapping: &Mapping) -> bool {
    let path = mapping.path.as_deref().unwrap_or("");
    let device = path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && !path.starts_with("/dev/zero");
    mapping.read && !device && path != "[vvar]" && !path.starts_with("[vvar_")
}

/// Ranges of whole pages to copy under a stop: wanted pages joined to ranges, only where the map allows it.
pub(crate) fn ranges(pages: &BTreeSet<u64>, mappings: &[Mapping]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &page in pages {
        let after = mappings.partition_point(|m| m.start.0 <= page);
        if !mappings[..after].last().is_some_and(|m| m.contains(Addr(page)) && may_read(m)) {
            continue;
        }
        match ranges.last_mut() {
            Some((_, end)) if *end == page => *end = page + PAGE,
            _ => ranges.push((page, page + PAGE)),
        }
    }
    ranges
}

/// Copy `ranges` out of `pid` in as few calls as possible, into a buffer that the caller has touched before, so that
/// no page fault of ours lengthens the stop. Ranges that fault are left out. Stops when `in_time` says no; the number
/// of ranges left undone is returned with what was copied.
pub(crate) fn copy(
    pid: i32,
    ranges: &[(u64, u64)],
    mut buffer: Vec<u8>,
    in_time: impl Fn() -> bool,
) -> (Vec<Copied>, usize) {
    let total: usize = ranges.iter().map(|(start, end)| (end - start) as usize).sum();
    if buffer.len() < total {
        buffer.resize(total, 0);
    }
    let mut good = Vec::new();
    let (mut next, mut at) = (0, 0);
    while next < ranges.len() && in_time() {
        let batch = &ranges[next..ranges.len().min(next + MOST_PIECES)];
        let remote: Vec<RemoteIoVec> =
            batch.iter().map(|(s, e)| RemoteIoVec { base: *s as usize, len: (e - s) as usize }).collect();
        let length: usize = remote.iter().map(|r| r.len).sum();
        let local = &mut [IoSliceMut::new(&mut buffer[at..at + length])];
        let mut got = process_vm_readv(Pid::from_raw(pid), local, &remote).unwrap_or(0);
        // The kernel stops at the first piece that faults: what came before it is good, it is skipped, and the rest
        // is asked for again.
        for (start, end) in batch {
            let size = (end - start) as usize;
            next += 1;
            if got < size {
                if got > 0 {
                    good.push((*start, at, got));
                }
                at += size;
                break;
            }
            good.push((*start, at, size));
            got -= size;
            at += size;
        }
    }
    let copied =
        good.into_iter().map(|(start, at, size)| Copied { start, bytes: buffer[at..at + size].to_vec() }).collect();
    (copied, ranges.len() - next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::MemoryExt;

    #[test]
    fn own_memory_is_read_and_late_reads_are_noted() {
        let word = Box::new(0x1122_3344_5566_7788u64);
        let address = Addr(&raw const *word as u64);
        let pid = std::process::id() as i32;
        let proc = super::super::proc_fs::Proc::new(std::path::Path::new("/proc"));
        let maps = proc.mappings(pid, &[pid]);
        let memory = LiveMemory::new(pid, maps.clone(), Vec::new());
        assert_eq!(memory.u64(address), Ok(*word));
        assert_eq!(memory.late(), BTreeSet::from([page_of(address)]));
        assert_eq!(memory.u64(Addr(8)), Err(Fault::Unmapped(Addr(0))));

        let wanted = ranges(&memory.late(), &maps);
        let (copied, undone) = copy(pid, &wanted, Vec::new(), || true);
        assert_eq!(undone, 0);
        let again = LiveMemory::new(pid, maps, copied);
        assert_eq!(again.u64(address), Ok(*word));
        assert!(again.late().is_empty());
    }

    #[test]
    fn a_range_that_faults_does_not_lose_the_others() {
        let bytes = vec![7u8; 3 * PAGE as usize];
        let start = page_of(Addr(bytes.as_ptr() as u64)) + PAGE;
        let wanted = [(PAGE, 2 * PAGE), (start, start + PAGE)];
        let (copied, undone) = copy(std::process::id() as i32, &wanted, Vec::new(), || true);
        assert_eq!((copied.len(), undone), (1, 0));
        assert_eq!((copied[0].start, copied[0].bytes[0]), (start, 7));
    }
}
