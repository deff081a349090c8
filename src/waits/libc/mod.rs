//! Locks of the C library: mutex, rwlock, condition variable, semaphore, join, FILE, and their likes in musl.
//!
//! In: the futex that a thread sleeps on, memory, stack words. Out: the object that the word belongs to and what
//! its own words say of the holder. Words decide, never a version or a symbol; a name only chooses between two
//! readings of equal words.

pub mod barrier;
pub mod call_sites;
pub mod condition;
pub mod initialisers;
pub mod join;
pub mod layout;
pub mod musl;
pub mod mutex;
pub mod named;
pub mod rwlock;
pub mod semaphore;
pub mod spinlock;

use super::facts::{CLibrary, Process, ThreadFacts};
use super::family::{Decoded, Family, Found, Look, exact_hold, key, label, waited};
use super::kernel::Futex;
use super::owner::{self, Ownership};
use super::{Observations, Party, Resource};
use crate::image::Addr;
use crate::waits::{Kind, kinds};

/// Kinds whose holders this family tells.
const KINDS: &[&Kind] = &[
    kinds::PTHREAD_MUTEX,
    kinds::PTHREAD_RWLOCK,
    kinds::PTHREAD_SPINLOCK,
    kinds::SEMAPHORE,
    kinds::STDIO_FILE,
    kinds::LOADER_LOCK,
    kinds::THREAD,
    kinds::FUTEX,
];
/// Kinds whose holders only frames tell.
const UNRECORDED: &[&Kind] = &[kinds::STATIC_GUARD, kinds::PTHREAD_ONCE, kinds::MALLOC_ARENA];

/// The family.
#[derive(Debug)]
pub struct Libc;

/// What a decoder works on.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a, 'b> {
    /// The process.
    pub process: &'a Process<'b>,
    /// The waiter.
    pub thread: &'a ThreadFacts<'b>,
    /// The kernel's account of the wait.
    pub below: &'a Decoded,
    /// Its futex.
    pub futex: Futex,
}

impl Case<'_, '_> {
    /// The word `offset` bytes from `base`.
    pub fn word(&self, base: Addr, offset: u64) -> Option<u32> {
        use crate::image::MemoryExt;
        self.process.memory().u32(base + offset).ok()
    }

    /// A resource of `kind` at `base`, called `noun`.
    pub fn resource(
        &self,
        kind: &'static Kind,
        noun: &str,
        base: Addr,
        mut state: Vec<(&'static str, i64)>,
    ) -> Resource {
        let key = key(self.process, kind, base);
        if key.address.is_null() {
            // In shared memory the address is no part of the identity, but people look for it.
            state.push(("address", base.0 as i64));
        }
        Resource {
            key,
            process: self.process.context.process,
            label: label(self.process, self.thread, noun, base),
            state,
        }
    }

    /// "futex word 0x33b84088 = rwlock + 8 (__wrphase_futex)".
    pub fn word_is(&self, noun: &str, base: Addr, field: &str) -> String {
        format!("futex word {} = {noun} + {} ({field})", self.futex.word, self.futex.word - base)
    }

    /// Whether the waiter is inside a function whose name starts with one of `prefixes`.
    pub fn inside(&self, prefixes: &[&str]) -> bool {
        self.thread.inside(8, prefixes)
    }
}

/// A decoder: `None` if the words are not of its object.
type Decoder = fn(&Case<'_, '_>) -> Option<Decoded>;

/// In the order of libc.md section 8: what is certain comes first.
const GLIBC: [Decoder; 10] = [
    mutex::inheriting,
    join::decode,
    condition::decode,
    mutex::robust,
    mutex::unread,
    mutex::parked,
    mutex::plain,
    rwlock::decode,
    semaphore::decode,
    named::decode,
];

impl Family for Libc {
    fn name(&self) -> &'static str {
        "libc"
    }

    fn kinds(&self) -> &'static [&'static Kind] {
        &[
            kinds::PTHREAD_MUTEX,
            kinds::PTHREAD_RWLOCK,
            kinds::PTHREAD_SPINLOCK,
            kinds::LOADER_LOCK,
            kinds::MALLOC_ARENA,
            kinds::STDIO_FILE,
            kinds::SEMAPHORE,
            kinds::PTHREAD_ONCE,
            kinds::STATIC_GUARD,
            kinds::THREAD,
            kinds::PTHREAD_COND,
            kinds::PTHREAD_BARRIER,
        ]
    }

    fn decode(&self, process: &Process<'_>, thread: &ThreadFacts<'_>, below: Option<&Decoded>) -> Option<Decoded> {
        let Some(below) = below else { return spinlock::decode(process, thread) };
        let Some(futex) = below.futex.filter(|_| below.resource.key.kind == kinds::FUTEX) else {
            return mutex::paused(process, thread, below);
        };
        let case = Case { process, thread, below, futex };
        if below.transient {
            return musl::left_asleep(&case);
        }
        match process.library {
            CLibrary::Glibc => GLIBC.iter().find_map(|decoder| decoder(&case)),
            CLibrary::Musl => musl::decode(&case).or_else(|| mutex::unread(&case)),
        }
    }

    fn holds(&self, look: &Look<'_>, waits: &[Found], out: &mut Observations) {
        for found in waited(waits, UNRECORDED) {
            initialisers::holders(look, waits, found, out);
        }
        for found in waited(waits, &[kinds::PTHREAD_BARRIER]) {
            barrier::holders(look, waits, found, out);
        }
        for found in waited(waits, KINDS) {
            let process = &look.processes[found.process];
            match &found.decoded.ownership {
                Ownership::Tid(owner) => owner::resolve(look, found, owner.clone(), out),
                Ownership::Thread(position, evidence) => {
                    if let Some(thread) = process.threads.get(*position) {
                        let holder = Party::Thread(process.context.process, thread.image.tid);
                        let key = &found.decoded.resource.key;
                        out.holds.push(exact_hold(key, holder, None, evidence.clone()));
                    }
                }
                Ownership::QueuedWriter(base) => rwlock::queued_writer(look, waits, found, *base, out),
                Ownership::ByCalls(lock, calls) => call_sites::holders(look, waits, found, *lock, calls, out),
                Ownership::AtHand(lock, size) => owner::at_hand(look, waits, found, *lock, *size, out),
                Ownership::Readers(count, base) => rwlock::readers(look, waits, found, *count, *base, out),
                // Nothing is known, or the kernel's family knows.
                _ => {}
            }
        }
    }
}
