//! Memory that keeps what is read through it.
//!
//! In: a [`Memory`]. Out: the same bytes and faults, and afterwards the touched blocks, as far as the sample's budget of
//! memory allows. It does not decide which blocks are worth keeping.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::model::SavedFault;
use crate::image::{Addr, Fault, Memory, budget};

/// Bytes of a page, by which faults are known.
pub(super) const PAGE: u64 = 4096;

/// Bytes that are kept together: objects on a heap are small, and lie far apart.
pub(super) const BLOCK: u64 = 256;

/// The bytes taken from the budget in one step.
const PIECE: u64 = 1 << 20;

/// Blocks by their address. One that faults in its middle ends there.
pub(super) type Blocks = BTreeMap<u64, Vec<u8>>;

/// [`Memory`] with a record.
#[derive(Debug)]
pub(crate) struct Recorder {
    inner: Arc<dyn Memory>,
    blocks: Mutex<Kept>,
    faults: Mutex<BTreeMap<u64, SavedFault>>,
}

/// The blocks, and how much the budget has given for them.
#[derive(Debug, Default)]
struct Kept {
    blocks: Blocks,
    granted: u64,
    is_full: bool,
}

impl Kept {
    /// Whether there is room for one block more.
    fn has_room(&mut self) -> bool {
        let needed = (self.blocks.len() as u64 + 1) * BLOCK;
        if needed > self.granted && !self.is_full {
            self.is_full = !budget::take(PIECE, || "memory of the target that the snapshot would keep".into());
            self.granted += if self.is_full { 0 } else { PIECE };
        }
        needed <= self.granted
    }
}

impl Recorder {
    /// Keep what is read of `inner` from now on.
    pub(super) fn new(inner: Arc<dyn Memory>) -> Recorder {
        Recorder { inner, blocks: Mutex::default(), faults: Mutex::default() }
    }

    /// Keep these bytes, as far as they can be read; the number of blocks that are new.
    pub(super) fn keep(&self, start: Addr, length: u64) -> usize {
        let Some(last) = start.0.checked_add(length.saturating_sub(1)) else { return 0 };
        let mut kept = locked(&self.blocks);
        let before = kept.blocks.len();
        let mut block = start.0 & !(BLOCK - 1);
        while block <= last {
            self.keep_block(&mut kept, block);
            let Some(next) = block.checked_add(BLOCK).filter(|_| !kept.is_full) else { break };
            block = next;
        }
        kept.blocks.len() - before
    }

    fn keep_block(&self, kept: &mut Kept, block: u64) {
        if kept.blocks.contains_key(&block) || !kept.has_room() {
            return;
        }
        let mut bytes = vec![0; BLOCK as usize];
        let mut done = 0;
        while done < bytes.len() {
            match self.inner.read(Addr(block) + done as u64, bytes.get_mut(done..).unwrap_or_default()) {
                Ok(read) if read > 0 => done += read,
                _ => break,
            }
        }
        bytes.truncate(done);
        if done > 0 {
            kept.blocks.insert(block, bytes);
        }
    }

    /// The kept blocks; the record begins anew. A caller that drops them gives their [`cost`] back to the budget.
    pub(super) fn take_blocks(&self) -> Blocks {
        let kept = std::mem::take(&mut *locked(&self.blocks));
        budget::give_back(kept.granted.saturating_sub(cost(&kept.blocks)));
        kept.blocks
    }

    /// Whether there was more than the budget allowed.
    pub(super) fn is_full(&self) -> bool {
        locked(&self.blocks).is_full
    }

    /// Where reads failed, by page; the record begins anew.
    pub(super) fn take_faults(&self) -> Vec<(u64, SavedFault)> {
        std::mem::take(&mut *locked(&self.faults)).into_iter().collect()
    }
}

impl Memory for Recorder {
    fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
        let result = self.inner.read(address, buffer);
        match result {
            Ok(read) => drop(self.keep(address, read as u64)),
            Err(fault) => drop(locked(&self.faults).insert(address.0 & !(PAGE - 1), SavedFault::of(fault))),
        }
        result
    }
}

/// The bytes of the budget that blocks take.
pub(super) fn cost(blocks: &Blocks) -> u64 {
    blocks.len() as u64 * BLOCK
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::MemoryExt;

    /// Bytes up to the middle of the second page, all 7.
    #[derive(Debug)]
    struct OneAndAHalf;

    impl Memory for OneAndAHalf {
        fn read(&self, address: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
            let rest = 0x2800u64.checked_sub(address.0).filter(|rest| *rest > 0 && address.0 >= 0x1000);
            let length = rest.ok_or(Fault::Denied(address))?.min(buffer.len() as u64) as usize;
            buffer[..length].fill(7);
            Ok(length)
        }
    }

    #[test]
    fn whole_blocks_and_faults_are_kept() {
        let recorder = Recorder::new(Arc::new(OneAndAHalf));
        assert_eq!(recorder.u8(Addr(0x1fff)), Ok(7));
        assert_eq!(recorder.take_blocks().keys().copied().collect::<Vec<_>>(), [0x1f00]);
        assert_eq!(recorder.u32(Addr(0x1ffe)), Ok(0x0707_0707));
        assert_eq!(recorder.take_blocks().keys().copied().collect::<Vec<_>>(), [0x1f00, 0x2000]);
        assert_eq!(recorder.keep(Addr(0x2780), 0x100), 1);
        assert_eq!(recorder.take_blocks()[&0x2700].len(), 0x100);
        assert_eq!(recorder.u8(Addr(0x2900)), Err(Fault::Denied(Addr(0x2900))));
        assert_eq!(recorder.take_faults(), [(0x2000, SavedFault::Denied)]);
        assert_eq!(recorder.keep(Addr(u64::MAX - 1), 9), 0);
    }

    /// Endless memory.
    #[derive(Debug)]
    struct Zeros;

    impl Memory for Zeros {
        fn read(&self, _: Addr, buffer: &mut [u8]) -> Result<usize, Fault> {
            buffer.fill(0);
            Ok(buffer.len())
        }
    }

    #[test]
    fn what_is_kept_is_of_the_budget_and_reads_go_on_without_it() {
        budget::begin();
        assert!(budget::take(budget::left() - (2 << 20), || unreachable!()));
        let recorder = Recorder::new(Arc::new(Zeros));
        assert_eq!(recorder.keep(Addr(0), 1 << 40), (2 << 20) / BLOCK as usize);
        assert!(recorder.is_full() && recorder.u64(Addr(1 << 40)) == Ok(0));
        assert_eq!(budget::gaps().len(), 1);
        let blocks = recorder.take_blocks();
        assert_eq!(cost(&blocks), 2 << 20);
        budget::give_back(cost(&blocks));
        assert_eq!(recorder.keep(Addr(0), BLOCK), 1);
        drop(recorder.take_blocks());
        assert!(budget::take((2 << 20) - BLOCK, || unreachable!()) && !budget::take(1, String::new));
        budget::begin();
    }
}
