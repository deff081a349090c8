//! Progress of a process tree, from /proc alone.
//!
//! In: the root of the tree. Out: a [`Sample`]: its processes, and how much CPU time they used since the pass before. It
//! stops nothing and decides nothing. These passes only read /proc; samples of memory and registers are another thing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use procfs::FromRead;
use procfs::process::Stat;

use super::own_names::{MONITOR, is_own};
use crate::image::live::children;
use crate::limits::run::MOST_PROCESSES;

/// The result of one pass over the tree.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// Its processes, the root's children first, without those that have ended.
    pub pids: Vec<i32>,
    /// CPU time used since the pass before, in milliseconds, by processes that were there then.
    pub used_ms: u64,
    /// Time since the pass before, in milliseconds; 0 for the first.
    pub elapsed_ms: u64,
    /// Processes came or went.
    pub changed: bool,
    /// The tree has more processes than are followed.
    pub in_part: bool,
    /// A monitor of tests is among them.
    pub monitored: bool,
}

/// A process's counters, unless it has ended.
fn stat(pid: i32) -> Option<Stat> {
    stat_of_any(pid).filter(|stat| !is_over(stat))
}

/// Whether a process has ended. One whose main thread alone has ended is a zombie, too, and goes on.
fn is_over(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1
}

fn stat_of_any(pid: i32) -> Option<Stat> {
    fs::File::open(format!("/proc/{pid}/stat")).map(Stat::from_read).ok()?.ok()
}

/// Whether a process has ended, whose status nobody has taken yet.
pub(super) fn has_ended(pid: i32) -> bool {
    stat_of_any(pid).is_some_and(|stat| is_over(&stat))
}

/// The status with which a process has ended, as a shell gives it, without taking it.
pub(super) fn exit_status(pid: i32) -> Option<u8> {
    let status = stat_of_any(pid).filter(is_over)?.exit_code?;
    // As wait(2) has it: the signal below, the status above.
    Some(if status & 0x7f == 0 { (status >> 8) as u8 } else { 128 + (status & 0x7f) as u8 })
}

/// When a process started, in ticks since boot; `None` once it has ended.
pub(crate) fn start_time(pid: i32) -> Option<u64> {
    stat(pid).map(|stat| stat.starttime)
}

/// These processes with all their descendants, each before its children, as far as they are followed; whether there are more.
fn followed(roots: Vec<i32>, children: impl Fn(i32) -> Vec<i32>) -> (Vec<i32>, bool) {
    let mut ahead = roots;
    ahead.reverse();
    let (mut seen, mut tree) = (BTreeSet::new(), Vec::new());
    while let Some(pid) = ahead.pop() {
        if seen.contains(&pid) {
            continue;
        }
        if tree.len() >= MOST_PROCESSES {
            return (tree, true);
        }
        seen.insert(pid);
        tree.push(pid);
        ahead.extend(children(pid).into_iter().rev());
    }
    (tree, false)
}

/// Takes passes over the tree.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    before: BTreeMap<i32, Counters>,
    at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counters {
    started: u64,
    ticks: u64,
}

impl Sampler {
    /// Pass over the tree.
    pub(crate) fn take(&mut self, root: i32, with_root: bool) -> Sample {
        let now = Instant::now();
        let mut sample = Sample::default();
        let mut counters = BTreeMap::new();
        let own = std::process::id() as i32;
        let (tree, in_part) = followed(if with_root { vec![root] } else { children(root) }, children);
        sample.in_part = in_part;
        let mut monitors = Vec::new();
        for pid in tree {
            let Some(stat) = stat(pid) else { continue };
            if pid == own || is_own(pid, &stat.comm, &monitors) {
                // Each is before its children.
                monitors.extend(Some(pid).filter(|_| stat.comm == MONITOR));
                continue;
            }
            sample.pids.push(pid);
            counters.insert(pid, Counters { started: stat.starttime, ticks: stat.utime + stat.stime });
        }
        sample.monitored = !monitors.is_empty();
        let tick_ms = 1000 / procfs::ticks_per_second().max(1);
        for (pid, now) in &counters {
            if let Some(before) = self.before.get(pid).filter(|before| before.started == now.started) {
                sample.used_ms += now.ticks.saturating_sub(before.ticks) * tick_ms;
            }
        }
        let same = |one: &BTreeMap<i32, Counters>, other: &BTreeMap<i32, Counters>| {
            one.len() == other.len() && one.iter().zip(other).all(|((a, x), (b, y))| a == b && x.started == y.started)
        };
        sample.changed = !same(&self.before, &counters);
        sample.elapsed_ms = self.at.map_or(0, |at| now.duration_since(at).as_millis() as u64);
        self.before = counters;
        self.at = Some(now);
        sample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_too_many_processes_is_followed_in_part_and_says_so() {
        // A chain, which ends at `last`.
        let chain = |last: i32| move |pid: i32| if pid < last { vec![pid + 1] } else { Vec::new() };
        let most = i32::try_from(MOST_PROCESSES).expect("a number of processes");
        let (all, in_part) = followed(vec![1], chain(most));
        assert!(all.len() == MOST_PROCESSES && !in_part);
        let (some, in_part) = followed(vec![1], chain(most + 1));
        assert!(some == all && in_part);
        // A chain that returns to a process already seen has no more processes.
        let (all, in_part) = followed(vec![1], |pid| vec![pid % most + 1]);
        assert!(all.len() == MOST_PROCESSES && !in_part);
    }
}
