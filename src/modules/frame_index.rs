//! Frame descriptions by address, for files whose .eh_frame_hdr is missing, and for .debug_frame.
//!
//! In: the bytes of the sections. Out: [`FrameIndex`], made once a module by one bounded pass.

use gimli::{BaseAddresses, CieOrFde, EndianSlice, LittleEndian, UnwindSection};

use crate::image::budget;

/// The most entries that are indexed: libtorch has about 300,000.
const MOST_ENTRIES: usize = 4_000_000;

/// Where each function's description stands.
#[derive(Debug, Default)]
pub(crate) struct FrameIndex {
    /// (first address, one past the last, offset in .eh_frame), in order.
    pub(crate) eh_frame: Vec<(u64, u64, usize)>,
    /// The same for .debug_frame.
    pub(crate) debug_frame: Vec<(u64, u64, usize)>,
}

/// Make the index of one section.
pub(crate) fn index<'a, S>(section: &S, bases: &BaseAddresses) -> Vec<(u64, u64, usize)>
where
    S: UnwindSection<EndianSlice<'a, LittleEndian>>,
{
    let mut list = Vec::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        if list.len() >= MOST_ENTRIES
            || !budget::make_room(&mut list, || "a part of the frame index of a large file".into())
        {
            break;
        }
        let CieOrFde::Fde(partial) = entry else { continue };
        if let Ok(fde) = partial.parse(S::cie_from_offset) {
            let start = fde.initial_address();
            list.push((start, start.saturating_add(fde.len()), fde.offset()));
        }
    }
    list.sort_unstable();
    list
}

/// The first address of the entry that covers `address`.
pub(crate) fn start(list: &[(u64, u64, usize)], address: u64) -> Option<u64> {
    let after = list.partition_point(|(start, _, _)| *start <= address);
    list.get(..after)?.last().filter(|(_, end, _)| address < *end).map(|(start, _, _)| *start)
}

/// The entry that covers `address`.
pub(crate) fn find(list: &[(u64, u64, usize)], address: u64) -> Option<usize> {
    let after = list.partition_point(|(start, _, _)| *start <= address);
    list.get(..after)?.last().filter(|(_, end, _)| address < *end).map(|(_, _, offset)| *offset)
}
