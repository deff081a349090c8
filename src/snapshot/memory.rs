//! Memory of a snapshot: the pages that it keeps.
//!
//! In: an address. Out: bytes, the fault that the sample itself met there, or that the page was not captured.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::model::SavedFault;
use super::recorder::PAGE;
use crate::image::{Addr, Fault, Mapping, Memory, saturated};
use crate::memory::copy_into;

/// Where the bytes of a page are.
#[derive(Debug)]
pub(super) enum Page {
    /// Here.
    Own(Vec<u8>),
    /// In the second note.
    InBlob(Range<usize>),
}

/// Pages by their address.
pub(super) type RecordedPages = BTreeMap<u64, Page>;

/// [`Memory`] of one process of one look.
#[derive(Debug)]
pub(super) struct RecordedMemory {
    pub(super) pages: RecordedPages,
    /// The part that all processes and samples share.
    pub(super) blob: Arc<Vec<u8>>,
    pub(super) faults: BTreeMap<u64, SavedFault>,
    pub(super) mappings: Vec<Mapping>,
}

impl RecordedMemory {
    /// The part of a kept page from `address` on.
    fn rest_of_page(&self, address: u64) -> Option<&[u8]> {
        let page = address & !(PAGE - 1);
        let bytes = match self.pages.get(&page)? {
            Page::Own(bytes) => bytes,
            Page::InBlob(range) => self.blob.get(range.clone())?,
        };
        bytes.get(saturated(address - page)..).filter(|rest| !rest.is_empty())
    }

    fn fault(&self, address: Addr) -> Fault {
        if let Some(fault) = self.faults.get(&(address.0 & !(PAGE - 1))) {
            return fault.at(address);
        }
        match Mapping::of(&self.mappings, address) {
            Some(_) => Fault::NotCaptured(address),
            None => Fault::Unmapped(address),
        }
    }
}

impl Memory for RecordedMemory {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.0.checked_add(done as u64) else { break };
            let Some(rest) = self.rest_of_page(at) else { break };
            let Some(room) = buffer.get_mut(done..) else { break };
            done += copy_into(room, rest);
        }
        if done > 0 { Ok(done) } else { Err(self.fault(address)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::MemoryExt;

    #[test]
    fn pages_faults_and_gaps() {
        let mapping = Mapping { read: true, write: true, ..Mapping::new(Addr(0x1000), Addr(0x9000)) };
        let memory = RecordedMemory {
            pages: BTreeMap::from([(0x1000, Page::InBlob(1..4097)), (0x2000, Page::Own(vec![2; 8]))]),
            blob: Arc::new(vec![1; 4097]),
            faults: BTreeMap::from([(0x5000, SavedFault::Denied)]),
            mappings: vec![mapping],
        };
        assert_eq!(memory.u32(Addr(0x1ffe)), Ok(0x0202_0101));
        assert_eq!(memory.read(Addr(0x1ffe), &mut [0; 99]), Ok(10));
        assert_eq!(memory.u8(Addr(0x2008)), Err(Fault::NotCaptured(Addr(0x2008))));
        assert_eq!(memory.u8(Addr(0x5001)), Err(Fault::Denied(Addr(0x5001))));
        assert_eq!(memory.u8(Addr(0x9000)), Err(Fault::Unmapped(Addr(0x9000))));
    }
}
