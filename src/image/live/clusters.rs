//! Which processes may be of a cluster of Dask or Ray, and which of them talk to each other by TCP.
//!
//! In: nothing, or one member or address of the cluster in question. Out: ids. Only files of /proc are read: a process
//! of another cluster is not touched. A sample of a process's memory later decides whether it is a member, and in which
//! cluster.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use std::collections::BTreeSet;
use std::fs::{read, read_to_string};
use std::net::SocketAddr;
use std::path::Path;

use super::launch;
use super::proc_fs::{self, ProcFs, descriptors};
use crate::image::descriptors::socket_inode;
use crate::launcher::{self, JobEngine};

/// The TCP sockets of one process.
#[derive(Debug, Default)]
struct Talks {
    /// The inode of its network namespace; `None` where lockscope may not read it.
    network: Option<u64>,
    /// Its own ends, and where it listens.
    own: BTreeSet<SocketAddr>,
    /// The other ends.
    others: BTreeSet<SocketAddr>,
}

impl Talks {
    /// Whether an end of a connection is one of its own.
    fn is_at(&self, end: &SocketAddr) -> bool {
        self.own.contains(end) || self.own.contains(&anywhere(*end))
    }

    /// Whether two are connected, or both with the same third.
    fn with(&self, other: &Talks) -> bool {
        let meets = |one: &Talks, two: &Talks| one.others.iter().any(|end| two.is_at(end));
        let is_same = self.network.is_some() && self.network == other.network;
        is_same && (meets(self, other) || meets(other, self) || !self.others.is_disjoint(&other.others))
    }

    /// Whether it may be with another for all that is known: it has no connection now, or is in another network, where addresses
    /// may be translated on the way.
    fn may_be_with(&self, other: &Talks) -> bool {
        self.network.is_none() || self.network != other.network || self.others.is_empty() || other.others.is_empty()
    }
}

/// The address at which one listens for this port on all addresses.
fn anywhere(end: SocketAddr) -> SocketAddr {
    let all = match end {
        SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    SocketAddr::new(all, end.port())
}

/// The libraries that an engine's cluster processes map for their communication: msgpack's module of C, which
/// distributed needs, and Ray's core.
const MARKS: [(JobEngine, &str); 2] = [(JobEngine::Dask, "/_cmsgpack."), (JobEngine::Ray, "/_raylet.so")];
/// A library that processes with PyTorch map: its module of Python.
const PYTORCH: &str = "/libtorch_python.so";
/// Where programs of Ray's lie that look after a cluster and take no part in jobs (2.60, ray/_private/services.py), and how such of its
/// dashboard call themselves (ray/dashboard/subprocesses/module.py).
const SERVICES: [&str; 3] = ["/site-packages/ray/", "/dist-packages/ray/", "ray-dashboard-"];
/// The process title of a worker without a task (src/ray/core_worker).
const IDLE: &str = "ray::IDLE";

/// Processes that may belong to a cluster of this engine, or of any. A process's maps are readable only where lockscope
/// may read its memory.
pub(crate) fn of_clusters(engine: Option<JobEngine>) -> Vec<i32> {
    let proc_fs = ProcFs::new("/proc");
    let is_meant =
        |(own, mark): &(JobEngine, &'static str)| engine.is_none_or(|engine| engine == *own).then_some(*mark);
    let marks: Vec<&str> = MARKS.iter().filter_map(is_meant).collect();
    let talks = |pid: &i32| {
        let directory = proc_fs.process(*pid);
        let maps = mapped(&directory);
        let is_service = || {
            let line = read(directory.join("cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).take(3).map(String::from_utf8_lossy).collect();
            let is_idle = words.first().is_some_and(|word| word.trim() == IDLE);
            is_idle || SERVICES.iter().any(|service| words.iter().any(|word| word.contains(service)))
        };
        marks.iter().any(|mark| maps.contains(mark)) && !is_service()
    };
    let mut found: Vec<i32> = launch::others(&proc_fs).filter(talks).collect();
    found.sort_unstable();
    found
}

/// The maps of a living process as the kernel prints them; empty if they are not readable.
fn mapped(directory: &Path) -> String {
    let lives = proc_fs::stat(directory).is_some_and(|stat| !stat.is_dead());
    if lives { read_to_string(directory.join("maps")).unwrap_or_default() } else { String::new() }
}

/// Processes that have PyTorch and no launcher's rank variable. They may be ranks nevertheless, as those that
/// `torch.multiprocessing.spawn` starts.
pub(crate) fn with_pytorch() -> Vec<i32> {
    let proc_fs = ProcFs::new("/proc");
    let may_be_one = |pid: &i32| {
        let directory = proc_fs.process(*pid);
        mapped(&directory).contains(PYTORCH) && launcher::membership(&launch::variables(&directory)).is_none()
    };
    let mut found: Vec<i32> = launch::others(&proc_fs).filter(may_be_one).collect();
    found.sort_unstable();
    found
}

/// Those of `pids` that may be of one cluster with process `pid`, or with who has this `address`: by their connections they talk to
/// it, to who talks to it, and so on. All where none of them is meant so.
pub(crate) fn together(pids: Vec<i32>, pid: Option<i32>, address: Option<SocketAddr>) -> Vec<i32> {
    let proc_fs = ProcFs::new("/proc");
    let mut networks = launch::Networks::default();
    let mut talks = |pid: i32| {
        let directory = proc_fs.process(pid);
        let network = launch::namespace(&directory, "net");
        let rows = networks.rows(network, &directory);
        let mut all = Talks { network, ..Talks::default() };
        for descriptor in descriptors(&directory).unwrap_or_default() {
            let Some(row) = socket_inode(&descriptor.target).and_then(|inode| rows.get(&inode)) else { continue };
            all.own.insert(row.local);
            if !row.listens {
                all.others.insert(row.remote);
            }
        }
        all
    };
    let all: Vec<Talks> = pids.iter().map(|pid| talks(*pid)).collect();
    let names = |one: &Talks, address: &SocketAddr| one.is_at(address) || one.others.contains(address);
    let is_meant = |(at, own): &(usize, &i32)| {
        let is_named = |address: &SocketAddr| all.get(*at).is_some_and(|one| names(one, address));
        Some(**own) == pid || address.as_ref().is_some_and(is_named)
    };
    let mut open: Vec<usize> = pids.iter().enumerate().filter(is_meant).map(|(at, _)| at).collect();
    if open.is_empty() {
        return pids;
    }
    let mut known: BTreeSet<usize> = open.iter().copied().collect();
    while let Some(one) = open.pop().and_then(|at| all.get(at)) {
        let fresh: Vec<usize> = all
            .iter()
            .enumerate()
            .filter(|(at, other)| !known.contains(at) && one.with(other))
            .map(|(at, _)| at)
            .collect();
        known.extend(fresh.iter().copied());
        open.extend(fresh);
    }
    // Processes with unknown sockets are included, but lead to no others. Otherwise a process that has just begun would
    // lead to all.
    let is_possible = |one: &Talks| known.iter().filter_map(|at| all.get(*at)).any(|other| one.may_be_with(other));
    let is_wanted = |at: &usize| known.contains(at) || all.get(*at).is_some_and(is_possible);
    pids.into_iter().enumerate().filter(|(at, _)| is_wanted(at)).map(|(_, pid)| pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talks(network: u64, own: &[&str], others: &[&str]) -> Talks {
        let parse = |ends: &[&str]| ends.iter().map(|end| end.parse().expect("an address")).collect();
        Talks { network: Some(network), own: parse(own), others: parse(others) }
    }

    #[test]
    fn two_talk_by_a_connection_or_by_the_same_third() {
        let scheduler = talks(1, &["0.0.0.0:8786", "10.0.0.1:8786"], &["10.0.0.1:40000"]);
        let worker = talks(1, &["10.0.0.1:40000"], &["10.0.0.1:8786"]);
        let other = talks(1, &["10.0.0.1:40001"], &["10.0.0.2:9000"]);
        let third = talks(1, &["10.0.0.1:40002"], &["10.0.0.2:9000"]);
        assert!(worker.with(&scheduler) && scheduler.with(&worker) && other.with(&third));
        assert!(!worker.with(&other) && !scheduler.with(&third));
        // Nothing is known of these.
        let elsewhere = talks(2, &["10.0.0.1:40001"], &["10.0.0.2:8786"]);
        let has_just_begun = talks(1, &[], &[]);
        let unread = Talks { network: None, ..talks(1, &["10.0.0.9:1"], &["10.0.0.9:2"]) };
        for unknown in [elsewhere, has_just_begun, unread] {
            assert!(unknown.may_be_with(&worker) && !unknown.with(&worker) && !worker.with(&unknown));
        }
        assert!(!worker.may_be_with(&other) && !other.may_be_with(&worker));
        let listens = talks(1, &["[::]:8787"], &["[::1]:5"]);
        assert!(talks(1, &["[::1]:7"], &["[::1]:8787"]).with(&listens));
    }

    #[test]
    fn nobody_meant_leaves_all() {
        let own = i32::try_from(std::process::id()).expect("a pid");
        assert_eq!(together(vec![own, own + 1], None, None), [own, own + 1]);
        assert_eq!(together(vec![own], Some(own), None), [own]);
    }
}
