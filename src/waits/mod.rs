//! Waits and holds: who sleeps on what, and who has it, each with certainty and evidence.
//!
//! In: a [`ProcessImage`](crate::image::ProcessImage), its merged threads and its Python runtime. Out:
//! [`Observations`]. Nothing here searches for cycles.
//!
//! Each layer imports only those above it in this list:
//!
//! 1. [`kinds`], [`model`], [`circumstances`], [`observations`]: the words of the result.
//! 2. [`blocked_call`], [`c_library`], [`thread`], [`references`], [`identity`]: one thread, its call, what its stack has, what an address is.
//! 3. [`blocked_on`]: what a thread is blocked on, and what that itself says of its holder.
//! 4. [`holders`]: rules for who has a lock that more than one family needs.
//! 5. [`family`]: what a lock family is. A new one is a folder beside [`libc`] and a line in [`mod@observe`].
//! 6. The families [`kernel`], [`libc`], [`cuda`], [`cpython`]: none knows another.
//! 7. [`mod@observe`], `quiescent`: the loop that asks them, and processes in which all threads wait.

pub mod blocked_call;
pub mod blocked_on;
pub mod c_library;
pub mod circumstances;
pub mod cpython;
pub mod cuda;
pub mod family;
pub mod holders;
pub mod identity;
pub mod kernel;
pub mod kinds;
pub mod libc;
pub mod model;
pub mod observations;
pub mod observe;
mod quiescent;
pub mod references;
pub mod thread;

pub use circumstances::{CudaLibrary, Fits, Handled};
pub use kinds::Kind;
pub use model::{Certainty, Gone, Hold, Needs, Party, Resource, ResourceKey, Scope, Unsatisfiable, Wait};
pub use observations::Observations;
pub use observe::{kind_named, observe};
pub use thread::Context;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
