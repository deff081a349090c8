//! The memory of a live process: what was copied under the stop first, the running process for the rest.
//!
//! In: copied ranges, the process's map, a source of pages. Out: [`Memory`], and the pages of changeable memory that
//! were read after the release, so that the next look copies them under its stop. It never reads device memory, and
//! it promises one instant only for what was copied.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::copying::Kept;
use crate::image::{Addr, Fault, Mapping, Memory, Scatter};
use crate::limits::live::{MOST_ALIKE, MOST_EXPECTED};
use crate::sys::Span;

/// The unit of stored memory: a part of a page where the kernel has larger ones.
pub(super) const PAGE: u64 = super::copying::PAGE as u64;
/// Reads after the release request blocks of this size, wherever their pages have to come from.
const BLOCK: u64 = 16 * 1024;
/// The first of them in a mapping also reads the pages in memory within this distance: another request takes longer.
const NEIGHBOURS: u64 = 64 * 1024;
/// Each further one in the same mapping takes twice as much along, up to this.
const FAR_NEIGHBOURS: u64 = 1024 * 1024;
/// Equal mappings up to this size are read together. Each thread of Python has one (from 3.11 on the chunk of its stack
/// of frames), and a reader of one reads them all.
const SMALL: u64 = 64 * 1024;

/// Why a source gave no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceError {
    /// The process is gone.
    Gone,
    /// It may not be read.
    Refused,
}

/// Where a running process's bytes come from; a seam for tests.
pub(super) trait Source: Send + Sync + std::fmt::Debug {
    /// The pages of a span of a mapping that can be read, and with them what is in memory of further spans.
    fn read(&self, mapping: &Mapping, span: Span, further: &[Span]) -> Result<Ranges, SourceError>;

    /// Begin to read the pages in memory of spans that are likely to be needed. Returns whether a copier does.
    fn begin(&self, _spans: &[Span]) -> bool {
        false
    }

    /// The outcome since the last call.
    fn begun(&self) -> Begun {
        Begun::Left
    }
}

/// The outcome of a read ahead.
#[derive(Debug)]
pub(super) enum Begun {
    /// Some pages, and there will be more.
    Some(Ranges),
    /// The last ones.
    All(Ranges),
    /// Nobody reads it any more.
    Left,
}

/// Ranges of memory copied at one time, page-aligned and apart from each other.
#[derive(Debug, Default)]
pub(super) struct Copied {
    ranges: Vec<(u64, Kept)>,
    /// The range of the last answer: what is read next mostly lies there, too.
    last: AtomicUsize,
}

impl Copied {
    /// From ranges by their first address.
    pub(super) fn new(ranges: Ranges) -> Copied {
        Copied { ranges: ranges.into_iter().collect(), last: AtomicUsize::new(0) }
    }

    /// Read what is held from `address` on, if that is of the range of the last answer.
    fn read_at_last(&self, address: u64, buffer: &mut [u8]) -> Option<usize> {
        read_from(self.ranges.get(self.last.load(Ordering::Relaxed))?, address, buffer)
    }

    /// Read what is held from `address` on.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Option<usize> {
        let position = self.position(address)?;
        self.last.store(position, Ordering::Relaxed);
        read_from(self.ranges.get(position)?, address, buffer)
    }

    /// Whether this address is of a range.
    fn holds(&self, address: u64) -> bool {
        self.position(address).is_some()
    }

    /// The range with this address.
    fn position(&self, address: u64) -> Option<usize> {
        let position = self.ranges.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let (start, pages) = self.ranges.get(position)?;
        (address - start < pages.len() as u64).then_some(position)
    }
}

/// Read what a range holds from `address` on; none if that is not of it.
fn read_from((start, pages): &(u64, Kept), address: u64, buffer: &mut [u8]) -> Option<usize> {
    pages.read(usize::try_from(address.checked_sub(*start)?).ok()?, buffer)
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

/// Whole pages by the address of the first.
pub(super) type Ranges = BTreeMap<u64, Kept>;

/// A page that was read after the release.
#[derive(Debug, Clone, Copy)]
struct LatePage {
    /// Its range among those that were read.
    range: usize,
    offset: usize,
    /// Whether it may have changed since the stop; `None` where it was only read with its neighbours, and never
    /// requested.
    changeable: Option<bool>,
}

/// The memory read after the release.
#[derive(Debug, Default)]
struct LatePages {
    ranges: Vec<Kept>,
    /// By their address, without the copied ones; `None` for a page that is not readable.
    pages: HashMap<u64, Option<LatePage>, Scatter>,
    /// How much was last taken along in a mapping, by its start.
    neighbours: HashMap<u64, u64>,
    /// The first unread mapping among those that are read together, by their size.
    alike: HashMap<u64, usize>,
    /// The size of the mappings that are read ahead.
    begun: Option<u64>,
    /// The page of the last answer: what is read next mostly lies there, too.
    last: Option<(u64, LatePage)>,
}

impl LatePages {
    /// Keep ranges, but no copied page. For a page that was read before, the first reading counts.
    fn add(&mut self, ranges: Ranges, copied: &Copied) {
        for (start, kept) in ranges {
            for offset in (0..kept.len()).step_by(PAGE as usize) {
                let page = LatePage { range: self.ranges.len(), offset, changeable: None };
                let address = start + offset as u64;
                if !copied.holds(address) {
                    self.pages.entry(address).or_insert(Some(page));
                }
            }
            self.ranges.push(kept);
        }
    }

    /// Read what a page holds from a byte of it on.
    fn read(&self, page: LatePage, from: u64, buffer: &mut [u8]) -> Option<usize> {
        self.ranges.get(page.range)?.read(page.offset + from as usize, buffer)
    }
}

/// [`Memory`] of a live process.
#[derive(Debug)]
pub(super) struct LiveMemory {
    source: Arc<dyn Source>,
    mappings: Vec<Mapping>,
    copied: Copied,
    late: Mutex<LatePages>,
}

impl LiveMemory {
    /// Layers over `copied`: `source` for what it lacks.
    pub(super) fn new(source: Arc<dyn Source>, mappings: Vec<Mapping>, copied: Copied) -> Self {
        LiveMemory { source, mappings, copied, late: Mutex::default() }
    }

    /// Pages of changeable memory that were read after the release.
    pub(super) fn late_pages(&self) -> BTreeSet<u64> {
        let late = locked(&self.late);
        let asked_for =
            late.pages.iter().filter(|(_, page)| page.as_ref().is_some_and(|page| page.changeable == Some(true)));
        asked_for.map(|(&address, _)| address).collect()
    }

    /// Whether the page of an address is changeable and was read after the release.
    pub(super) fn is_late(&self, address: Addr) -> bool {
        let late = locked(&self.late);
        let page = late.pages.get(&(address.0 & !(PAGE - 1))).and_then(Option::as_ref);
        page.is_some_and(|page| page.changeable == Some(true))
    }

    /// Whether a piece of changeable memory is still what this gives; false where it cannot be read again.
    pub(super) fn is_unchanged(&self, address: Addr, length: usize) -> bool {
        let (mut known, mut now) = (vec![0; length], Vec::new());
        let (Ok(read), Ok(mapping)) = (self.read(address, &mut known), self.mapping(address.0)) else { return false };
        known.truncate(read);
        let start = address.0 & !(PAGE - 1);
        let end = address.0.saturating_add(length as u64).next_multiple_of(PAGE).min(mapping.end.0);
        let span = Span { start, length: (end - start) as usize };
        let Ok(pages) = self.source.read(mapping, span, &[]) else { return false };
        for part in pages.values() {
            let from = now.len();
            now.resize(from + part.len(), 0);
            if part.read(0, now.get_mut(from..).unwrap_or_default()) != Some(part.len()) {
                return false;
            }
        }
        let first = (address.0 - start) as usize;
        now.get(first..first + known.len()) == Some(&known) && !known.is_empty()
    }

    fn mapping(&self, address: u64) -> Result<&Mapping, Fault> {
        let mapping = Mapping::of(&self.mappings, Addr(address)).ok_or(Fault::Unmapped(Addr(address)))?;
        if is_readable(mapping) { Ok(mapping) } else { Err(Fault::Denied(Addr(address))) }
    }

    /// Read from the copies, or else from the running process, then at most to the end of the page of `address`.
    fn read_any(&self, address: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let page = address & !(PAGE - 1);
        let mut late = locked(&self.late);
        if let Some((_, known)) = late.last.filter(|(last, _)| *last == page) {
            let count = late.read(known, address - page, buffer);
            return count.ok_or(Fault::Denied(Addr(address)));
        }
        if !late.pages.contains_key(&page) {
            if let Some(count) = self.copied.read(address, buffer) {
                return Ok(count);
            }
            self.take_begun(address, &mut late);
            if !late.pages.contains_key(&page) {
                self.read_block(address, &mut late)?;
            }
        }
        // Guard pages inside a mapping (MADV_GUARD_INSTALL, glibc 2.42 and later): no look can copy them.
        let known = late.pages.get_mut(&page).and_then(Option::as_mut).ok_or(Fault::Denied(Addr(address)))?;
        if known.changeable.is_none() {
            known.changeable = Some(is_changeable(self.mapping(address)?));
        }
        let known = *known;
        late.last = Some((page, known));
        late.read(known, address - page, buffer).ok_or(Fault::Denied(Addr(address)))
    }

    /// Read the block with `address` from the running process, and the memory that a reader probably needs next.
    fn read_block(&self, address: u64, late: &mut LatePages) -> Result<(), Fault> {
        let mapping = self.mapping(address)?;
        let block = part_of(mapping, address, BLOCK);
        let size = late.neighbours.entry(mapping.start.0).or_insert(NEIGHBOURS / 2);
        *size = (*size * 2).min(FAR_NEIGHBOURS);
        let around = part_of(mapping, address, *size);
        let mut further = Vec::new();
        self.add_unknown(around, block, late, &mut further);
        if is_small(mapping) {
            self.add_alike(length(mapping), MOST_ALIKE, block, late, &mut further);
        }
        let ranges = self.source.read(mapping, block, &further).map_err(|error| match error {
            SourceError::Gone => Fault::Gone(Addr(address)),
            SourceError::Refused => Fault::Denied(Addr(address)),
        })?;
        late.add(ranges, &self.copied);
        pages_of(block).for_each(|page| {
            if !self.copied.holds(page) {
                late.pages.entry(page).or_default();
            }
        });
        Ok(())
    }

    /// Begin to read the mappings that a reader probably needs: small ones of one size, at least one for each of
    /// `threads` threads.
    pub(super) fn expect(&self, threads: usize) {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for mapping in self.mappings.iter().filter(|mapping| is_small(mapping)) {
            *counts.entry(length(mapping)).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|&(size, count)| (count, size));
        let Some((size, _)) = most.filter(|(_, count)| *count >= threads) else { return };
        let (mut late, mut spans) = (locked(&self.late), Vec::new());
        self.add_alike(size, MOST_EXPECTED, Span { start: 0, length: 0 }, &mut late, &mut spans);
        late.begun = (!spans.is_empty() && self.source.begin(&spans)).then_some(size);
        if late.begun.is_none() {
            late.alike.remove(&size);
        }
    }

    /// Take the pages that were read ahead, until the page of an address is among them.
    fn take_begun(&self, address: u64, late: &mut LatePages) {
        let Some(size) = late.begun else { return };
        let page = address & !(PAGE - 1);
        // For other memory nobody waits.
        if !self.mapping(address).is_ok_and(|mapping| length(mapping) == size && is_small(mapping)) {
            return;
        }
        while late.begun.is_some() && !late.pages.contains_key(&page) {
            match self.source.begun() {
                Begun::Some(ranges) => late.add(ranges, &self.copied),
                Begun::All(ranges) => {
                    late.add(ranges, &self.copied);
                    late.begun = None;
                }
                Begun::Left => {
                    late.begun = None;
                    late.alike.remove(&size);
                }
            }
        }
    }

    /// Add the unread parts of small mappings of a size. Where there are thousands, add at most the next `most`
    /// mappings.
    fn add_alike(&self, size: u64, most: usize, block: Span, late: &mut LatePages, runs: &mut Vec<Span>) {
        let mut next = late.alike.get(&size).copied().unwrap_or(0);
        for _ in 0..most {
            let rest = self.mappings.get(next..).unwrap_or_default();
            let Some(found) = rest.iter().position(|one| length(one) == size && is_small(one)) else {
                next = self.mappings.len();
                break;
            };
            if let Some(one) = rest.get(found) {
                self.add_unknown(Span { start: one.start.0, length: size as usize }, block, late, runs);
            }
            next += found + 1;
        }
        late.alike.insert(size, next);
    }

    /// Add the unread runs of pages of a span, except those of `block`.
    fn add_unknown(&self, span: Span, block: Span, late: &LatePages, runs: &mut Vec<Span>) {
        let is_of_block = |page: u64| page.wrapping_sub(block.start) < block.length as u64;
        let is_known = |page: u64| late.pages.contains_key(&page) || self.copied.holds(page);
        for page in pages_of(span).filter(|&page| !is_of_block(page) && !is_known(page)) {
            match runs.last_mut().filter(|run| run.start + run.length as u64 == page) {
                Some(run) => run.length += PAGE as usize,
                None => runs.push(Span { start: page, length: PAGE as usize }),
            }
        }
    }
}

/// The part of a mapping that lies in the piece of memory of this size with `address`.
fn part_of(mapping: &Mapping, address: u64, size: u64) -> Span {
    let start = address & !(size - 1);
    let end = start.saturating_add(size).min(mapping.end.0);
    let start = start.max(mapping.start.0);
    Span { start, length: (end - start) as usize }
}

fn pages_of(span: Span) -> impl Iterator<Item = u64> {
    (span.start..span.start.saturating_add(span.length as u64)).step_by(PAGE as usize)
}

fn length(mapping: &Mapping) -> u64 {
    mapping.end.0.saturating_sub(mapping.start.0)
}

/// Whether it is a small piece of the process's own memory.
fn is_small(mapping: &Mapping) -> bool {
    length(mapping) <= SMALL && mapping.read && mapping.write && !mapping.shared && mapping.path.is_none()
}

impl Memory for LiveMemory {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.0.checked_add(done as u64) else { break };
            let part = &mut buffer[done..];
            let result = match self.copied.read_at_last(at, part) {
                Some(count) => Ok(count),
                None => self.read_any(at, part),
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

/// Lock, also after a panic elsewhere: the maps behind these locks are whole between any two statements.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::MemoryExt;

    /// Pages at 0x10000, 0x11000 and 0x13000; each byte is the page's number.
    #[derive(Debug, Default)]
    struct Fake {
        calls: Mutex<usize>,
        gone: bool,
    }

    impl Source for Fake {
        fn read(&self, _: &Mapping, span: Span, further: &[Span]) -> Result<Ranges, SourceError> {
            if self.gone {
                return Err(SourceError::Gone);
            }
            *locked(&self.calls) += 1;
            let numbers = further.iter().chain([&span]).flat_map(|&span| pages_of(span)).map(|page| page >> 12);
            let present = numbers.filter(|number| [0x10, 0x11, 0x13].contains(number));
            Ok(present.map(|number| (number << 12, Kept::of(&[number as u8; 0x1000]))).collect())
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

    #[test]
    fn layers_and_late_pages() {
        let source = Arc::new(Fake::default());
        let copied = Copied::new(BTreeMap::from([(0x10000, Kept::of(&[0x10; 0x1000]))]));
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
        assert_eq!([0x10008, 0x11008, 0x13008].map(|word| memory.is_late(Addr(word))), [false, true, false]);
        let calls = *locked(&source.calls);
        assert_eq!(memory.u8(Addr(0x13fff)), Ok(0x13));
        assert_eq!(*locked(&source.calls), calls, "kept");
        assert_eq!(memory.u8(Addr(0x12000)), Err(Fault::Unmapped(Addr(0x12000))));
        assert_eq!(memory.u8(Addr(u64::MAX)), Err(Fault::Unmapped(Addr(u64::MAX))));
    }

    #[test]
    fn what_was_copied_stays_as_it_was() {
        // The page behind the copied one is read later, with its neighbours.
        let source = Arc::new(Fake::default());
        let copied = Copied::new(BTreeMap::from([(0x10000, Kept::of(&[0xaa; 0x1000]))]));
        let memory = LiveMemory::new(source.clone(), vec![mapping(0x10000, 0x14000, true, None)], copied);
        assert_eq!((memory.u8(Addr(0x11000)), memory.u8(Addr(0x10000))), (Ok(0x11), Ok(0xaa)));
        assert_eq!((memory.u8(Addr(0x13000)), *locked(&source.calls)), (Ok(0x13), 1), "a neighbour");
        assert_eq!(memory.u8(Addr(0x12000)), Err(Fault::Denied(Addr(0x12000))));
        assert_eq!(memory.late_pages().into_iter().collect::<Vec<_>>(), [0x11000, 0x13000]);
    }

    #[test]
    fn small_mappings_that_are_alike_are_read_together() {
        let source = Arc::new(Fake::default());
        let maps = vec![
            mapping(0x10000, 0x11000, true, None),
            mapping(0x11000, 0x12000, true, Some("/lib/x")),
            mapping(0x13000, 0x14000, true, None),
        ];
        let memory = LiveMemory::new(source.clone(), maps, Copied::default());
        assert_eq!((memory.u8(Addr(0x10000)), memory.u8(Addr(0x13000))), (Ok(0x10), Ok(0x13)));
        assert_eq!(*locked(&source.calls), 1);
        assert_eq!((memory.u8(Addr(0x11000)), *locked(&source.calls)), (Ok(0x11), 2), "a file's is none of them");
        assert_eq!(memory.late_pages().into_iter().collect::<Vec<_>>(), [0x10000, 0x11000, 0x13000]);
    }

    /// Reads ahead, a span at a time, if it may.
    #[derive(Debug, Default)]
    struct ReadsAhead {
        asked_for: Mutex<Vec<u64>>,
        begun: Mutex<Vec<Span>>,
        is_left: bool,
    }

    impl Source for ReadsAhead {
        fn read(&self, _: &Mapping, span: Span, further: &[Span]) -> Result<Ranges, SourceError> {
            let spans: Vec<Span> = std::iter::once(span).chain(further.iter().copied()).collect();
            locked(&self.asked_for).extend(spans.iter().map(|span| span.start));
            Ok(spans.into_iter().map(|span| (span.start, Kept::of(&[1; PAGE as usize]))).collect())
        }

        fn begin(&self, spans: &[Span]) -> bool {
            locked(&self.begun).extend(spans.iter().rev());
            true
        }

        fn begun(&self) -> Begun {
            match locked(&self.begun).pop() {
                _ if self.is_left => Begun::Left,
                Some(span) => Begun::Some(Ranges::from([(span.start, Kept::of(&[2; PAGE as usize]))])),
                None => Begun::All(Ranges::new()),
            }
        }
    }

    #[test]
    fn what_each_of_many_threads_has_is_read_ahead() {
        let small = |start: u64| mapping(start, start + PAGE, true, None);
        let maps = vec![mapping(0x10000, 0x12000, true, None), small(0x20000), small(0x22000), small(0x24000)];
        let look = |threads: usize, source: ReadsAhead| {
            let source = Arc::new(source);
            let memory = LiveMemory::new(source.clone(), maps.clone(), Copied::default());
            memory.expect(threads);
            let begun = locked(&source.begun).len();
            let bytes = [0x22000, 0x20000, 0x10000, 0x24000].map(|address| memory.u8(Addr(address)));
            let asked_for = locked(&source.asked_for).clone();
            (begun, bytes, asked_for, memory.late_pages().len())
        };
        let (begun, bytes, asked_for, late) = look(3, ReadsAhead::default());
        assert_eq!((begun, bytes), (3, [Ok(2), Ok(2), Ok(1), Ok(2)]));
        assert_eq!((asked_for, late), (vec![0x10000], 4), "other memory is not waited for");
        let (begun, bytes, asked_for, _) = look(3, ReadsAhead { is_left: true, ..ReadsAhead::default() });
        assert_eq!((begun, bytes), (3, [Ok(1); 4]));
        assert_eq!(asked_for, [0x22000, 0x20000, 0x24000, 0x10000], "asked for together");
        assert_eq!(look(4, ReadsAhead::default()).0, 0, "fewer than threads");
    }

    #[test]
    fn more_is_taken_along_each_time() {
        /// Has every page, and notes the number of pages in each request.
        #[derive(Debug, Default)]
        struct Whole(Mutex<Vec<usize>>);
        impl Source for Whole {
            fn read(&self, _: &Mapping, span: Span, further: &[Span]) -> Result<Ranges, SourceError> {
                let pages: Vec<u64> = further.iter().chain([&span]).flat_map(|&span| pages_of(span)).collect();
                locked(&self.0).push(pages.len());
                Ok(pages.into_iter().map(|page| (page, Kept::of(&[1; PAGE as usize]))).collect())
            }
        }
        let source = Arc::new(Whole::default());
        let memory =
            LiveMemory::new(source.clone(), vec![mapping(0x100_0000, 0x200_0000, true, None)], Copied::default());
        for page in (0x100_0000..0x180_0000).step_by(PAGE as usize) {
            assert_eq!(memory.u8(Addr(page)), Ok(1));
        }
        // No page is requested twice.
        assert_eq!(*locked(&source.0), [16, 16, 32, 64, 128, 256, 256, 256, 256, 256, 256, 256]);
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
    fn spans_are_joined_pages() {
        let spans =
            page_spans([(0x3010, 0x3020), (0x1001, 0x1002), (0x1ff0, 0x2010), (5, 5), (u64::MAX - 1, u64::MAX)]);
        assert_eq!(spans[0], Span { start: 0x1000, length: 0x3000 });
        assert_eq!(spans.len(), 1, "the last page of all has no end");
    }
}
