//! A job over many processes and machines: one verdict for all of its ranks.
//!
//! In: reports of the ranks of each node, and digests that were written elsewhere. Out: a [`Digest`], which is a set of
//! samples, and one [`Report`](crate::report::Report) over all of them. Nothing here samples a process or opens a file.
//!
//! ```text
//! cluster   the same of clusters of workers, which have no ranks: Dask's and Ray's
//! digest    the kept data of a sample of the ranks of a node, and its file
//! distil    a report, as the sample that is kept of it
//! lines     processes and threads of a report, in a line each
//! inside    the part of a chain of waits that lies inside a rank and its helpers
//! helpers   processes that work for a rank and that it waits for, as workers of a DataLoader
//! witness   accounts of ranks: files of PyTorch, NCCL, Ray, Slurm and Kubernetes
//! testimony their accounts of operations, added to the samples of these ranks
//! launched  their accounts of nodes and pods: the number of ranks, and why some have no sample
//! gather    all samples of one job: rounds of the same rank, and missing ranks
//! standing  waits that did not change from the first round to the second
//! held      whether anything may still come to a thread that polls
//! links     who waits for whom, by numbers of ranks, else by connections
//! judge     the judgement, root cause first
//! tell      the report
//! gaps      facts that the samples lack
//! phrases   the activity of ranks, in words
//! ```
//!
//! # Invariants
//!
//! * A digest is a set of samples, and a sample is named by its content: merging is the union of sets. So it is
//!   associative, commutative and idempotent, and equal input gives equal bytes.
//! * `deadlock` needs two rounds: the same request with the same words (counters of bytes among them) in both, or a
//!   call that was not left in between while nothing was under way, and members that saw each other: a sample of the
//!   second round names the samples of the first that were written when it began. No clock is compared but that of one
//!   machine.
//! * Links inside one operation that all members have entered make no cycle.
//! * Missing data is reported: ranks without a sample are gaps, and lockscope concludes nothing from them but that they
//!   are missing.

mod cluster;
mod content;
mod digest;
mod distil;
mod gaps;
mod gather;
mod held;
mod helpers;
mod inside;
mod judge;
mod launched;
#[cfg(test)]
mod launched_tests;
mod lines;
mod links;
mod long_message;
mod phrases;
mod rank_report;
mod ranks;
mod standing;
#[cfg(test)]
mod talk_tests;
mod testimony;
#[cfg(test)]
mod tests;
mod thread_summary;
mod witness;

pub(crate) use digest::{Digest, DigestError, Look, Member, RankWait, Seen};
pub(crate) use distil::{distil, first_on_gpu, witnesses};
pub(crate) use gather::key_of;
pub(crate) use rank_report::report;
pub(crate) use ranks::ranges;
pub(crate) use standing::LEAST_POLLED;
pub(crate) use witness::Witness;
