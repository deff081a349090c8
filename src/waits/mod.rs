//! Waits and holds: who sleeps on what, and who has it, each with certainty and evidence.
//!
//! In: a [`ProcessImage`](crate::image::ProcessImage), its merged threads and its Python runtime. Out:
//! [`Observations`]. Nothing here searches for cycles.
//!
//! Each layer imports only those above it in this list:
//!
//! 1. [`label`], [`kinds`], [`model`], [`proof`], [`circumstances`], [`cluster`], [`collective`], [`observations`]: the
//!    words of the result.
//! 2. [`blocked_call`], [`c_library`], [`thread`], [`polling`], [`references`], [`identity`]: one thread, its call, the
//!    locks that its code polls, the addresses on its stack, the meaning of an address.
//! 3. [`blocked_on`], [`progress`]: the resource that a thread is blocked on, and the resource's own account of its
//!    holder; whether the thread waits inside a call that polls.
//! 4. [`holders`]: rules for finding a lock's holder that more than one family needs.
//! 5. [`family`]: the interface of a lock family. A new one is a folder beside [`libc`] and a line in [`mod@observe`].
//! 6. The families [`kernel`], [`libc`], [`absl`], [`pools`], [`mpi`], [`c10d`], [`cuda`], [`cpython`]: none knows
//!    another.
//! 7. [`mod@observe`], `recorded`, `wakers`: the loop that runs them, the recorder's additional facts, and the wake
//!    sources of waits that no release by a holder ends.

pub(crate) mod absl;
pub(crate) mod accounts;
pub(crate) mod blocked_call;
pub(crate) mod blocked_on;
pub(crate) mod c10d;
pub(crate) mod c_library;
pub(crate) mod circumstances;
pub(crate) mod cluster;
pub(crate) mod collective;
pub(crate) mod cpython;
pub(crate) mod cuda;
pub(crate) mod family;
pub(crate) mod holders;
pub(crate) mod identity;
pub(crate) mod kernel;
pub(crate) mod kinds;
pub(crate) mod label;
pub(crate) mod libc;
mod lock_paths;
pub(crate) mod model;
pub(crate) mod mpi;
pub(crate) mod observations;
pub(crate) mod observe;
pub(crate) mod polling;
pub(crate) mod pools;
pub(crate) mod progress;
pub(crate) mod proof;
pub(crate) mod recorded;
pub(crate) mod references;
pub(crate) mod thread;
mod wakers;

pub(crate) use circumstances::Handled;
pub(crate) use model::{
    Certainty, Gone, Hold, Needs, Party, Resource, ResourceKey, Scope, Strength, Wait, WakeSource, Waker,
};
pub(crate) use observations::Observations;
pub(crate) use observe::{kind_named, kind_names, observe};
pub(crate) use proof::Proof;
pub(crate) use thread::CapturedProcess;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
