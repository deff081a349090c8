//! Memory that keeps what is read through it.
//!
//! In: a [`Memory`]. Out: the same bytes and faults, and afterwards the pages that were touched. It decides nothing
//! about what is worth keeping.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::model::SavedFault;
use crate::image::{Addr, Fault, Memory};

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// Pages by their address. A page that faults in its middle ends there.
pub(super) type Pages = BTreeMap<u64, Vec<u8>>;

/// [`Memory`] with a record.
#[derive(Debug)]
pub(crate) struct Recorder {
    inner: Arc<dyn Memory>,
    pages: Mutex<Pages>,
    faults: Mutex<BTreeMap<u64, SavedFault>>,
}

impl Recorder {
    /// Keep what is read of `inner` from now on.
    pub(super) fn new(inner: Arc<dyn Memory>) -> Recorder {
        Recorder { inner, pages: Mutex::default(), faults: Mutex::default() }
    }

    /// Keep these bytes, as far as they can be read; the number of pages that are new.
    pub(super) fn keep(&self, start: Addr, length: u64) -> usize {
        let Some(last) = start.0.checked_add(length.saturating_sub(1)) else { return 0 };
        let mut pages = locked(&self.pages);
        let before = pages.len();
        let mut page = start.0 & !(PAGE - 1);
        while page <= last {
            self.keep_page(&mut pages, page);
            let Some(next) = page.checked_add(PAGE) else { break };
            page = next;
        }
        pages.len() - before
    }

    fn keep_page(&self, pages: &mut Pages, page: u64) {
        if pages.contains_key(&page) {
            return;
        }
        let mut bytes = vec![0; PAGE as usize];
        let mut done = 0;
        while done < bytes.len() {
            match self.inner.read(Addr(page) + done as u64, bytes.get_mut(done..).unwrap_or_default()) {
                Ok(read) if read > 0 => done += read,
                _ => break,
            }
        }
        bytes.truncate(done);
        if done > 0 {
            pages.insert(page, bytes);
        }
    }

    /// What was kept; the record begins anew.
    pub(super) fn take_pages(&self) -> Pages {
        std::mem::take(&mut *locked(&self.pages))
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
    fn whole_pages_and_faults_are_kept() {
        let recorder = Recorder::new(Arc::new(OneAndAHalf));
        assert_eq!(recorder.u8(Addr(0x1fff)), Ok(7));
        assert_eq!(recorder.take_pages().keys().copied().collect::<Vec<_>>(), [0x1000]);
        assert_eq!(recorder.u32(Addr(0x1ffe)), Ok(0x0707_0707));
        assert_eq!(recorder.take_pages()[&0x2000].len(), 0x800);
        assert_eq!(recorder.u8(Addr(0x2900)), Err(Fault::Denied(Addr(0x2900))));
        assert_eq!(recorder.take_faults(), [(0x2000, SavedFault::Denied)]);
        assert_eq!(recorder.keep(Addr(u64::MAX - 1), 9), 0);
    }
}
