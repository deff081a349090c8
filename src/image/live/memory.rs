//! The memory of a live process: what was copied under the stop first, the running process for the rest.
//!
//! In: copied ranges, the process's map, a source of bytes. Out: [`Memory`], and the pages of changeable memory that
//! were read after the release, so that the next look copies them under its stop. It never reads device memory, and
//! it promises one instant only for what was copied.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use nix::errno::Errno;

use super::proc_fs::ProcFs;
use crate::image::{Addr, Fault, Mapping, Memory};
use crate::sys::{self, Span};

/// Page size of x86-64.
pub(super) const PAGE: u64 = 4096;
/// Reads after the release are done, and kept, in blocks of this size.
const BLOCK: u64 = 16 * 1024;
/// Most bytes of one call under the stop: between two calls the clock is looked at.
const BYTES_PER_CALL: usize = 4 << 20;
/// Most pages that may fault in one copy, so that a strange map cannot make it endless.
const MAX_FAULTS: usize = 4096;

/// Why a source gave no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceError {
    /// The process is gone.
    Gone,
    /// It may not be read.
    Refused,
}

/// Where a process's bytes come from; a seam for tests.
pub(super) trait Source: Send + Sync + std::fmt::Debug {
    /// Read the spans, one after the other, into `buffer`; the number of bytes before the first that faults.
    fn read(&self, spans: &[Span], buffer: &mut [u8]) -> Result<usize, SourceError>;
}

/// A running process.
#[derive(Debug)]
pub(super) struct Running {
    proc_fs: ProcFs,
    pid: i32,
    /// A thread that lives: a main thread that has exited has no memory.
    task: Mutex<i32>,
    file: OnceLock<Option<File>>,
}

impl Running {
    /// The process `pid`, by its living thread `task`.
    pub(super) fn new(proc_fs: ProcFs, pid: i32, task: i32) -> Self {
        Running { proc_fs, pid, task: Mutex::new(task), file: OnceLock::new() }
    }

    /// The slow way, for sandboxes that refuse process_vm_readv.
    fn read_file(&self, task: i32, spans: &[Span], buffer: &mut [u8]) -> Result<usize, SourceError> {
        let file = self.file.get_or_init(|| File::open(self.proc_fs.process(task).join("mem")).ok());
        let file = file.as_ref().ok_or(SourceError::Refused)?;
        let mut done = 0;
        for span in spans {
            let Some(part) = buffer.get_mut(done..done + span.length) else { break };
            let mut got = 0;
            while got < part.len() {
                match file.read_at(&mut part[got..], span.start + got as u64) {
                    Ok(count) if count > 0 => got += count,
                    _ => return Ok(done + got),
                }
            }
            done += got;
        }
        Ok(done)
    }
}

impl Source for Running {
    fn read(&self, spans: &[Span], buffer: &mut [u8]) -> Result<usize, SourceError> {
        let mut task = *locked(&self.task);
        let mut result = sys::read_spans(task, spans, buffer);
        if result == Err(Errno::ESRCH) {
            // That thread has exited: another one may live.
            task = self.proc_fs.living_thread(self.pid).ok_or(SourceError::Gone)?;
            *locked(&self.task) = task;
            result = sys::read_spans(task, spans, buffer);
        }
        match result {
            Ok(count) => Ok(count),
            Err(Errno::EFAULT) => Ok(0),
            Err(Errno::ESRCH) => Err(SourceError::Gone),
            Err(_) => self.read_file(task, spans, buffer),
        }
    }
}

/// Ranges of memory copied at one time, page-aligned and apart from each other.
#[derive(Debug, Default)]
pub(super) struct Copied {
    ranges: Vec<(u64, Vec<u8>)>,
}

impl Copied {
    /// The bytes held from `address` on.
    fn at(&self, address: u64) -> Option<&[u8]> {
        let after = self.ranges.partition_point(|(start, _)| *start <= address);
        let (start, bytes) = self.ranges[..after].last()?;
        bytes.get(usize::try_from(address - start).ok()?..).filter(|bytes| !bytes.is_empty())
    }

    #[cfg(test)]
    fn size(&self) -> usize {
        self.ranges.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Copy `spans` that are not held yet, until `deadline`; the number of bytes that did not fit in the time.
    pub(super) fn copy(&mut self, source: &dyn Source, spans: &[Span], deadline: Instant) -> u64 {
        let mut queue: Vec<Span> = spans.iter().flat_map(|&span| self.missing(span)).collect();
        queue.reverse();
        let mut faults = 0;
        let mut fresh = Vec::new();
        while !queue.is_empty() && faults < MAX_FAULTS && Instant::now() < deadline {
            let mut batch = Vec::new();
            let mut size = 0;
            while let Some(span) = queue.last().copied().filter(|_| batch.len() < sys::SPANS_PER_CALL) {
                let room = BYTES_PER_CALL - size;
                if room < PAGE as usize {
                    break;
                }
                let length = span.length.min(room / PAGE as usize * PAGE as usize);
                queue.pop();
                if length < span.length {
                    queue.push(Span { start: span.start + length as u64, length: span.length - length });
                }
                batch.push(Span { start: span.start, length });
                size += length;
            }
            let mut buffer = vec![0; size];
            let Ok(read) = source.read(&batch, &mut buffer) else { break };
            let mut left = read.min(size);
            let mut bytes = buffer.as_slice();
            for (index, span) in batch.iter().enumerate() {
                let (part, rest) = bytes.split_at(span.length);
                bytes = rest;
                if left >= span.length {
                    left -= span.length;
                    fresh.push((span.start, part.to_vec()));
                    continue;
                }
                // This element faults: keep its whole pages before, and go on behind the page that faults.
                let kept = left / PAGE as usize * PAGE as usize;
                if kept > 0 {
                    fresh.push((span.start, part[..kept].to_vec()));
                }
                faults += 1;
                queue.extend(batch[index + 1..].iter().rev());
                let beyond = kept + PAGE as usize;
                if beyond < span.length {
                    queue.push(Span { start: span.start + beyond as u64, length: span.length - beyond });
                }
                break;
            }
        }
        self.ranges.append(&mut fresh);
        self.ranges.sort_unstable_by_key(|(start, _)| *start);
        queue.iter().map(|span| span.length as u64).sum()
    }

    /// The parts of a span that are not held.
    fn missing(&self, span: Span) -> Vec<Span> {
        let mut parts = Vec::new();
        let (mut at, end) = (span.start, span.start.saturating_add(span.length as u64));
        while at < end {
            if let Some(held) = self.at(at) {
                at += held.len() as u64;
                continue;
            }
            let after = self.ranges.partition_point(|(start, _)| *start <= at);
            let next = self.ranges.get(after).map_or(end, |(start, _)| (*start).min(end));
            parts.push(Span { start: at, length: (next - at) as usize });
            at = next;
        }
        parts
    }
}

/// Widen ranges `[start, end)` to pages, sort them, join those that touch.
pub(super) fn page_spans(ranges: impl IntoIterator<Item = (u64, u64)>) -> Vec<Span> {
    let mut pages: Vec<(u64, u64)> = ranges
        .into_iter()
        .filter(|(start, end)| start < end)
        .map(|(start, end)| (start & !(PAGE - 1), end.checked_next_multiple_of(PAGE).unwrap_or(!(PAGE - 1))))
        .collect();
    pages.retain(|(start, end)| start < end);
    pages.sort_unstable();
    let mut spans: Vec<(u64, u64)> = Vec::with_capacity(pages.len());
    for (start, end) in pages {
        match spans.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => spans.push((start, end)),
        }
    }
    spans.into_iter().map(|(start, end)| Span { start, length: (end - start) as usize }).collect()
}

/// Whether lockscope may read a mapping. Device memory is never read: a read may have effects on the device.
pub(super) fn is_readable(mapping: &Mapping) -> bool {
    let path = mapping.path.as_deref().unwrap_or("");
    let device = path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && path != "/dev/zero";
    let other = ["/dmabuf", "anon_inode:", "[vvar", "[vsyscall"].iter().any(|prefix| path.starts_with(prefix));
    mapping.read && !device && !other
}

/// Whether the bytes of a mapping can change while the process runs.
pub(super) fn is_changeable(mapping: &Mapping) -> bool {
    let fixed = mapping.is_file() || mapping.path.as_deref() == Some("[vdso]");
    mapping.write || mapping.shared || !fixed
}

/// Pages by their address.
type Pages = BTreeMap<u64, Vec<u8>>;

/// [`Memory`] of a live process.
#[derive(Debug)]
pub(super) struct LiveMemory {
    source: Arc<dyn Source>,
    mappings: Vec<Mapping>,
    copied: Copied,
    blocks: Mutex<HashMap<u64, Arc<Pages>>>,
    late: Mutex<BTreeSet<u64>>,
}

impl LiveMemory {
    /// Layers over `copied`: `source` for what it lacks.
    pub(super) fn new(source: Arc<dyn Source>, mappings: Vec<Mapping>, copied: Copied) -> Self {
        LiveMemory { source, mappings, copied, blocks: Mutex::new(HashMap::new()), late: Mutex::new(BTreeSet::new()) }
    }

    /// Pages of changeable memory that were read after the release.
    pub(super) fn late_pages(&self) -> BTreeSet<u64> {
        locked(&self.late).clone()
    }

    fn mapping(&self, address: u64) -> Result<&Mapping, Fault> {
        let mapping = Mapping::of(&self.mappings, Addr(address)).ok_or(Fault::Unmapped(Addr(address)))?;
        if is_readable(mapping) { Ok(mapping) } else { Err(Fault::Denied(Addr(address))) }
    }

    /// Copy from the running process; at most to the end of the page of `address`.
    fn read_late(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mapping = self.mapping(address)?;
        let page = address & !(PAGE - 1);
        let start = (address & !(BLOCK - 1)).max(mapping.start.0);
        let end = ((address & !(BLOCK - 1)).saturating_add(BLOCK)).min(mapping.end.0);
        let block = {
            let known = locked(&self.blocks).get(&start).cloned();
            match known {
                Some(block) => block,
                None => {
                    let block = Arc::new(self.read_block(start, end).map_err(|error| match error {
                        SourceError::Gone => Fault::Gone(Addr(address)),
                        SourceError::Refused => Fault::Denied(Addr(address)),
                    })?);
                    locked(&self.blocks).insert(start, Arc::clone(&block));
                    block
                }
            }
        };
        let bytes = block.get(&page).and_then(|bytes| bytes.get((address - page) as usize..));
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
            // Guard pages inside a mapping (MADV_GUARD_INSTALL, glibc 2.42 and later): no look can copy them.
            return Err(Fault::Denied(Addr(address)));
        };
        if is_changeable(mapping) {
            locked(&self.late).insert(page);
        }
        Ok(fill(buffer, bytes))
    }

    /// The pages of a block that can be read.
    fn read_block(&self, start: u64, end: u64) -> Result<Pages, SourceError> {
        let mut pages = BTreeMap::new();
        let mut at = start;
        while at < end {
            let mut buffer = vec![0; (end - at) as usize];
            let read = self.source.read(&[Span { start: at, length: buffer.len() }], &mut buffer)?;
            let whole = read.min(buffer.len()) / PAGE as usize * PAGE as usize;
            for (index, page) in buffer[..whole].chunks(PAGE as usize).enumerate() {
                pages.insert(at + index as u64 * PAGE, page.to_vec());
            }
            // Behind a page that faults there may be others: files shorter than their mapping, poisoned pages.
            at += whole as u64 + PAGE;
        }
        Ok(pages)
    }
}

impl Memory for LiveMemory {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.0.checked_add(done as u64) else { break };
            let part = &mut buffer[done..];
            let result = match self.copied.at(at) {
                Some(bytes) => Ok(fill(part, bytes)),
                None => self.read_late(at, part),
            };
            match result {
                Ok(count) => done += count,
                Err(fault) if done == 0 => return Err(fault),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

fn fill(buffer: &mut [u8], bytes: &[u8]) -> usize {
    let count = buffer.len().min(bytes.len());
    buffer[..count].copy_from_slice(&bytes[..count]);
    count
}

/// Lock, also after a panic elsewhere: the maps behind these locks are whole between any two statements.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::image::MemoryExt;

    /// Pages at 0x10000, 0x11000 and 0x13000; each byte is the page's number.
    #[derive(Debug, Default)]
    struct Fake {
        calls: Mutex<usize>,
        gone: bool,
    }

    impl Source for Fake {
        fn read(&self, spans: &[Span], buffer: &mut [u8]) -> Result<usize, SourceError> {
            if self.gone {
                return Err(SourceError::Gone);
            }
            *locked(&self.calls) += 1;
            let mut done = 0;
            for span in spans {
                for offset in 0..span.length as u64 {
                    let page = (span.start + offset) >> 12;
                    if ![0x10, 0x11, 0x13].contains(&page) {
                        return Ok(done);
                    }
                    buffer[done] = page as u8;
                    done += 1;
                }
            }
            Ok(done)
        }
    }

    fn mapping(start: u64, end: u64, write: bool, path: Option<&str>) -> Mapping {
        Mapping {
            start: Addr(start),
            end: Addr(end),
            read: true,
            write,
            execute: false,
            shared: false,
            offset: 0,
            device: (0, 0),
            inode: u64::from(path.is_some()),
            path: path.map(str::to_owned),
            deleted: false,
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn layers_and_late_pages() {
        let source = Arc::new(Fake::default());
        let mut copied = Copied::default();
        assert_eq!(copied.copy(&*source, &[Span { start: 0x10000, length: 0x1000 }], soon()), 0);
        let maps = vec![mapping(0x10000, 0x12000, true, None), mapping(0x13000, 0x14000, false, Some("/lib/x"))];
        let memory = LiveMemory::new(source.clone(), maps, copied);
        assert_eq!(memory.u8(Addr(0x10ffe)), Ok(0x10));
        assert!(memory.late_pages().is_empty());
        // Across the seam of two layers, up to the end of the mapping.
        let mut buffer = [0; 0x3000];
        assert_eq!(memory.read(Addr(0x10ff0), &mut buffer), Ok(0x1010));
        assert_eq!((buffer[15], buffer[16]), (0x10, 0x11));
        assert_eq!(memory.late_pages().into_iter().collect::<Vec<_>>(), [0x11000]);
        assert_eq!(memory.u8(Addr(0x13000)), Ok(0x13));
        assert_eq!(memory.late_pages().len(), 1, "a file's pages are not late");
        let calls = *locked(&source.calls);
        assert_eq!(memory.u8(Addr(0x13fff)), Ok(0x13));
        assert_eq!(*locked(&source.calls), calls, "kept");
        assert_eq!(memory.u8(Addr(0x12000)), Err(Fault::Unmapped(Addr(0x12000))));
        assert_eq!(memory.u8(Addr(u64::MAX)), Err(Fault::Unmapped(Addr(u64::MAX))));
    }

    #[test]
    fn faults_have_their_reason() {
        let maps = vec![
            mapping(0x10000, 0x11000, true, Some("/dev/nvidia0")),
            mapping(0x12000, 0x14000, true, Some("/dev/shm/x")),
        ];
        let memory = LiveMemory::new(Arc::new(Fake::default()), maps.clone(), Copied::default());
        assert_eq!(memory.u8(Addr(0x10000)), Err(Fault::Denied(Addr(0x10000))));
        assert_eq!(memory.u8(Addr(0x12000)), Err(Fault::Denied(Addr(0x12000))), "faults though mapped");
        assert_eq!(memory.u8(Addr(0x13000)), Ok(0x13), "behind the page that faults");
        let gone = LiveMemory::new(Arc::new(Fake { gone: true, ..Fake::default() }), maps, Copied::default());
        assert_eq!(gone.u8(Addr(0x13000)), Err(Fault::Gone(Addr(0x13000))));
    }

    #[test]
    fn one_fault_does_not_lose_the_other_spans() {
        let mut copied = Copied::default();
        let spans = [
            Span { start: 0xf000, length: 0x1000 },
            Span { start: 0x10000, length: 0x4000 },
            Span { start: 0x20000, length: 0x1000 },
            Span { start: 0x13000, length: 0x1000 },
        ];
        assert_eq!(copied.copy(&Fake::default(), &spans[..3], soon()), 0);
        assert_eq!(copied.size(), 0x3000);
        assert_eq!(copied.at(0x13001).map(|bytes| bytes[0]), Some(0x13));
        copied.copy(&Fake::default(), &spans, soon());
        assert_eq!(copied.size(), 0x3000, "nothing twice");
    }

    #[test]
    fn what_does_not_fit_in_the_time_is_told() {
        let mut copied = Copied::default();
        let past = Instant::now();
        assert_eq!(copied.copy(&Fake::default(), &[Span { start: 0x10000, length: 0x2000 }], past), 0x2000);
    }

    #[test]
    fn spans_are_joined_pages() {
        let spans =
            page_spans([(0x3010, 0x3020), (0x1001, 0x1002), (0x1ff0, 0x2010), (5, 5), (u64::MAX - 1, u64::MAX)]);
        assert_eq!(spans[0], Span { start: 0x1000, length: 0x3000 });
        assert_eq!(spans.len(), 1, "the last page of all has no end");
    }
}
