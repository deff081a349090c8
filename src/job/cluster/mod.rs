//! A cluster of workers, as Dask's or Ray's: one verdict over its processes, where tasks wait for locks and results of each other.
//!
//! In: a [`Digest`] with samples of workers, schedulers and clients. Out: a [`Report`]. They have no ranks, and many
//! threads of one process wait for different things: so it is threads that are joined here, by names of locks and keys of tasks.
//!
//! ```text
//! members    the processes of one cluster, each with the round before
//! ray_tasks  accounts of tasks by Ray's processes and witnesses
//! link       the types of links between threads
//! ray        actors: the ids of Ray's tasks lead to processes
//! stuck      which threads can never go on, and for whom each of them waits
//! judge      the judgement, root cause first
//! tell       the report; its sentences in `sentences`
//! ```
//!
//! A request bears what no other one has (a lease, a task of the event loop) and a lock the name of its lease, so what is the same in
//! two rounds stood still between them. `deadlock` needs that of each member, and that the samples saw each other.

mod judge;
mod link;
mod members;
mod ray;
mod ray_tasks;
#[cfg(test)]
mod ray_tests;
mod report;
mod sentences;
mod stuck;
#[cfg(test)]
pub(super) mod tests;

use super::digest::Digest;
use crate::report::Report;
use members::Members;

/// The report over the cluster in a digest; `None` where it has more ranks of a job than processes of a cluster.
pub(super) fn report(digest: &Digest) -> Option<Report> {
    let members = || digest.looks().flat_map(|look| &look.members);
    let of_cluster = members().filter(|member| member.cluster.is_some()).count();
    let ranks = members().filter(|member| member.cluster.is_none() && member.identity.rank.is_some()).count();
    if of_cluster == 0 || of_cluster < ranks {
        return None;
    }
    let members = Members::of(digest);
    let judgement = judge::judge(&members);
    Some(report::report(digest, &members, &judgement))
}
