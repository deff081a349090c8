//! A job over many processes and machines: one verdict for all of its ranks.
//!
//! In: reports of the ranks of each node, and digests that were written elsewhere. Out: a [`Digest`], which is a set of looks, and
//! one [`Report`](crate::report::Report) over all of them. Nothing here looks at a process or opens a file.
//!
//! ```text
//! cluster   the same of clusters of workers, which have no ranks: Dask's and Ray's
//! digest    what is kept of a look at the ranks of a node, and the file of it
//! distil    a report, as the look that is kept of it
//! lines     processes and threads of a report, in a line each
//! helpers   processes that work for a rank and that it waits for, as workers of a DataLoader
//! witness   what others say of ranks: files of PyTorch, NCCL, Ray, Slurm and Kubernetes
//! testimony what they say of operations, added to the looks at these ranks
//! launched  what they say of nodes and pods: how many ranks there are, and why there is no look at some
//! gather    all looks of one job: which are rounds of the same rank, who is missing
//! standing  what stood still from the first round to the second
//! held      whether anything may still come to a thread that polls
//! links     who waits for whom, by numbers of ranks, else by connections
//! judge     what that means, root cause first
//! tell      the report
//! gaps      what the looks do not tell
//! phrases   what ranks do, in words
//! ```
//!
//! # Invariants
//!
//! * A digest is a set of looks, and a look is named by its content: merging is the union of sets. So it is associative,
//!   commutative and idempotent, and equal input gives equal bytes.
//! * `deadlock` needs two rounds: the same request with the same words (counters of bytes among them) in both, or a call that was
//!   not left in between while nothing was under way, and members that saw each other: a look of the second round names the looks of the first that were written when it began. No clock is
//!   compared but that of one machine.
//! * Links inside one operation that all members have entered make no cycle.
//! * What is not there is said: ranks without a look are gaps, and nothing is concluded from them but that they are missing.

mod cluster;
mod content;
mod digest;
mod distil;
mod gaps;
mod gather;
mod held;
mod helpers;
mod judge;
mod launched;
#[cfg(test)]
mod launched_tests;
mod lines;
mod links;
mod long_message;
mod phrases;
mod ranks;
mod standing;
#[cfg(test)]
mod talk_tests;
mod tell;
mod testimony;
#[cfg(test)]
mod tests;
mod told_thread;
mod witness;

pub(crate) use digest::{Digest, DigestError, Look, Member, RankWait, Seen};
pub(crate) use distil::{distil, first_on_gpu, witnesses};
pub(crate) use gather::key_of;
pub(crate) use ranks::ranges;
pub(crate) use standing::LEAST_POLLED;
pub(crate) use tell::report;
pub(crate) use witness::Witness;
