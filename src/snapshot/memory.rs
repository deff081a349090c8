//! Memory of a snapshot: the blocks that it keeps.
//!
//! In: an address. Out: bytes, the fault that the sample itself met there, or that the block was not captured.

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
use super::recorder::{BLOCK, PAGE};
use crate::image::{Addr, Fault, Mapping, Memory, saturated};
use crate::memory::copy_into;

/// Where the bytes of a block are.
#[derive(Debug)]
pub(super) enum Block {
    /// Here.
    Own(Vec<u8>),
    /// In the second note.
    InBlob(Range<usize>),
}

/// Blocks by their address.
pub(super) type RecordedBlocks = BTreeMap<u64, Block>;

/// [`Memory`] of one process of one look.
#[derive(Debug)]
pub(super) struct RecordedMemory {
    pub(super) blocks: RecordedBlocks,
    /// The part that all processes and samples share.
    pub(super) blob: Arc<Vec<u8>>,
    pub(super) faults: BTreeMap<u64, SavedFault>,
    pub(super) mappings: Vec<Mapping>,
}

impl RecordedMemory {
    /// The part of a kept block from `address` on.
    fn rest_of_block(&self, address: u64) -> Option<&[u8]> {
        let block = address & !(BLOCK - 1);
        let bytes = match self.blocks.get(&block)? {
            Block::Own(bytes) => bytes,
            Block::InBlob(range) => self.blob.get(range.clone())?,
        };
        bytes.get(saturated(address - block)..).filter(|rest| !rest.is_empty())
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
            let Some(rest) = self.rest_of_block(at) else { break };
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
    fn blocks_faults_and_gaps() {
        let mapping = Mapping { read: true, write: true, ..Mapping::new(Addr(0x1000), Addr(0x9000)) };
        let memory = RecordedMemory {
            blocks: BTreeMap::from([(0x1f00, Block::InBlob(1..257)), (0x2000, Block::Own(vec![2; 8]))]),
            blob: Arc::new(vec![1; 257]),
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
