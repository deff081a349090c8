//! `pthread_join`: a thread waits for the end of another.
//!
//! In: a [`Case`]. Out: the resource "thread", which that thread itself holds until it ends. Both glibc forms: the
//! futex word is `pd->tid` (up to 2.42) or `pd->joinstate` (2.43).

use super::Case;
use super::layout;
use crate::image::Addr;
use crate::waits::blocked_call::{FUTEX_WAIT, FUTEX_WAIT_BITSET};
use crate::waits::blocked_on::{BlockedOn, Ownership};
use crate::waits::identity::private_scope;
use crate::waits::kinds;
use crate::waits::label::Label;
use crate::waits::model::{Resource, ResourceKey};

/// Calls that join.
pub(super) const ENTRY_POINTS: &[&str] =
    &["pthread_join", "pthread_timedjoin", "pthread_clockjoin", "thrd_join", "futex"];
/// joinstate of a thread that runs and can be joined (nptl/descr.h, commit 5da15b15ad).
const JOINABLE: u32 = 2;

/// Decode a glibc join.
pub(super) fn decode(case: &Case<'_, '_>) -> Option<BlockedOn> {
    let futex = case.futex;
    // All forms are without FUTEX_PRIVATE_FLAG, since the kernel wakes them when the thread ends.
    const PRIVATE: u32 = 0x80;
    if futex.operation & PRIVATE != 0 || !matches!(futex.command, FUTEX_WAIT | FUTEX_WAIT_BITSET) {
        return None;
    }
    let descriptor = case.process.architecture().descriptor_layout();
    let joinstate = layout::JOINSTATE_BEHIND_TID;
    for (pd, position) in case.process.pthreads() {
        if futex.word == pd + descriptor.glibc_tid && futex.value == case.process.threads[position].libc_tid as u32 {
            return Some(joined(case, pd, position, "pd->tid"));
        }
        let from = pd + descriptor.glibc_tid + joinstate.start;
        let is_joinstate = futex.word.within(from, joinstate.end - joinstate.start);
        if futex.value == JOINABLE && futex.command == FUTEX_WAIT_BITSET && is_joinstate {
            return Some(joined(case, pd, position, "pd->joinstate"));
        }
    }
    // A target without registers.
    let pd = futex.word - descriptor.glibc_tid;
    let position = case.process.by_descriptor(pd)?;
    let is_its_id = futex.value == case.process.threads[position].libc_tid as u32;
    is_its_id.then(|| joined(case, pd, position, "pd->tid"))
}

/// The wait for the thread at `position`.
pub(super) fn joined(case: &Case<'_, '_>, pd: Addr, position: usize, field: &str) -> BlockedOn {
    let target = &case.process.threads[position];
    let tid = target.image.tid;
    let process = case.process.context.process;
    let resource = Resource {
        key: ResourceKey { kind: kinds::THREAD, scope: private_scope(case.process), address: pd },
        process,
        label: Label::from("thread").named(Some(target.name())).with_detail(Some(tid.to_string())),
        state: vec![("tid", i64::from(tid))],
        role: None,
    };
    let futex = case.futex;
    let known = format!(
        "futex word {} = pthread {pd} + {:#x} ({field}) has value {} until thread {tid} ends",
        futex.word,
        futex.word - pd,
        futex.value
    );
    case.below.refined(resource, ENTRY_POINTS, vec![known.clone()]).owned(Ownership::Thread(position, vec![known]))
}
