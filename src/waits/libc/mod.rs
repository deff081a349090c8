//! Locks of the C library: mutex, rwlock, condition variable, semaphore, join, FILE, and their likes in musl.
//!
//! In: the futex that a thread sleeps on, memory, stack words. Out: the object that the word belongs to and what
//! its own words say of the holder. Words decide, never a version or a symbol; a name only chooses between two
//! readings of equal words.

mod ahead;
mod barrier;
mod by_function;
mod condition;
mod join;
mod layout;
mod llvm_openmp;
mod lock_calls;
mod musl;
mod mutex;
mod once;
mod own_locks;
mod parking_lot;
mod rwlock;
mod semaphore;
mod spinlock;

use crate::image::{Addr, MemoryExt};
use crate::limits::libc::CALL_FRAMES;
use crate::waits::blocked_call::Futex;
use crate::waits::blocked_on::{BlockedOn, ThreadWait};
use crate::waits::c_library::CLibrary;
use crate::waits::family::{Family, Registered, Way};
use crate::waits::holders::Blocked;
use crate::waits::identity::{key, label};
use crate::waits::kinds::{self, Kind};
use crate::waits::model::Resource;
use crate::waits::observations::Observations;
use crate::waits::thread::{ByNames, Process, ThreadView};

/// The rule that finds the holder of a resource of this family, where no shared rule does.
#[derive(Debug, Clone, Copy)]
enum HolderRule {
    /// The threads that have yet to come to the barrier.
    Barrier {
        /// It is one of glibc, which counts.
        is_glibc: bool,
    },
    /// The thread that runs the initialiser of the once control here.
    Once(Addr),
    /// The thread inside the allocator.
    Arena,
    /// The thread that called the waiter's own function with the word here before.
    OwnLock(Addr),
    /// The writer that is in front of a reader in the queue of the rwlock here.
    QueuedWriter(Addr),
}

/// The family.
#[derive(Debug, Default)]
struct Libc {
    by_names: ByNames<by_function::Fits>,
}

/// Its row in the list of families.
pub(crate) const FAMILY: Registered = Registered {
    kinds: &[
        kinds::PTHREAD_MUTEX,
        kinds::PTHREAD_RWLOCK,
        kinds::PTHREAD_SPINLOCK,
        kinds::LOADER_LOCK,
        kinds::MALLOC_ARENA,
        kinds::STDIO_FILE,
        kinds::SEMAPHORE,
        kinds::OPENMP_LOCK,
        kinds::PTHREAD_ONCE,
        kinds::STATIC_GUARD,
        kinds::THREAD,
        kinds::PTHREAD_COND,
        kinds::PTHREAD_BARRIER,
    ],
    open,
};

/// Open the family.
fn open<'s>(_: &'s [Process<'s>]) -> Box<dyn Family + 's> {
    Box::new(Libc::default())
}

/// The input of a decoder.
#[derive(Debug, Clone, Copy)]
struct Case<'a, 'b> {
    /// The process.
    process: &'a Process<'b>,
    /// The waiter.
    thread: &'a ThreadView<'b>,
    /// The kernel's account of the wait.
    below: &'a BlockedOn,
    /// Its futex.
    futex: Futex,
    /// The object that the names of its frames show.
    by_name: Option<by_function::Found<'a>>,
}

impl Case<'_, '_> {
    /// The word `offset` bytes from `base`.
    fn word(&self, base: Addr, offset: u64) -> Option<u32> {
        self.process.memory().u32(base + offset).ok()
    }

    /// A resource of `kind` at `base`, called `noun`.
    fn resource(&self, kind: &'static Kind, noun: &str, base: Addr, mut state: Vec<(&'static str, i64)>) -> Resource {
        let key = key(self.process, kind, base);
        if key.address.is_null() {
            // In shared memory the address is no part of the identity, but users search for it.
            state.push(("address", base.0 as i64));
        }
        Resource {
            key,
            process: self.process.context.process,
            label: label(self.process, self.thread, noun, base),
            state,
            role: None,
        }
    }

    /// "futex word 0x33b84088 = rwlock + 8 (__wrphase_futex)".
    fn word_is(&self, noun: &str, base: Addr, field: &str) -> String {
        format!("futex word {} = {noun} + {} ({field})", self.futex.word, self.futex.word - base)
    }

    /// Whether the waiter is inside a function whose name starts with one of `prefixes`.
    fn inside(&self, prefixes: &'static [&'static str]) -> bool {
        self.thread.inside(CALL_FRAMES, prefixes)
    }
}

/// A decoder: `None` if the words are not of its object.
type Decoder = fn(&Case<'_, '_>) -> Option<BlockedOn>;

/// In the order of libc.md section 8: what is certain comes first.
const GLIBC: [Decoder; 11] = [
    mutex::inheriting,
    join::decode,
    llvm_openmp::barrier,
    condition::decode,
    mutex::robust,
    mutex::not_captured,
    mutex::refused_and_parked,
    mutex::plain,
    rwlock::decode,
    semaphore::decode,
    by_function::decode,
];

impl Family for Libc {
    fn decode(&self, process: &Process<'_>, thread: &ThreadView<'_>, below: Option<&BlockedOn>) -> Option<BlockedOn> {
        let Some(below) = below else {
            return spinlock::decode(process, thread).or_else(|| llvm_openmp::lock(process, thread));
        };
        let Some(futex) = below.futex.filter(|_| below.resource.key.kind == kinds::FUTEX) else {
            return mutex::refused_and_paused(process, thread, below);
        };
        let case = Case { process, thread, below, futex, by_name: by_function::by_frames(&self.by_names, thread) };
        if below.transient {
            return musl::left_asleep(&case);
        }
        if by_function::is_of_rust(&case) {
            return by_function::decode(&case);
        }
        match process.library {
            CLibrary::Glibc => GLIBC.iter().find_map(|decoder| decoder(&case)),
            CLibrary::Musl => musl::decode(&case).or_else(|| mutex::not_captured(&case)),
        }
    }

    fn giver(&self, process: &Process<'_>, thread: usize, found: &ThreadWait) -> Option<Way> {
        ahead::way(process, &process.threads[thread], found.blocked_on.resource.key.kind)
    }

    fn holds(&self, blocked: &Blocked<'_>, out: &mut Observations) {
        for (wait, rule) in blocked.by_rule::<HolderRule>() {
            match *rule {
                HolderRule::Barrier { is_glibc } => barrier::holders(blocked, wait, is_glibc, out),
                HolderRule::Once(control) => once::initialisers(blocked, wait, control, out),
                HolderRule::Arena => once::allocators(blocked, wait, out),
                HolderRule::OwnLock(word) => own_locks::holders(blocked, wait, word, out),
                HolderRule::QueuedWriter(base) => rwlock::queued_writer(blocked, wait, base, out),
            }
        }
    }
}
