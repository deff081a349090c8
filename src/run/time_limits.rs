//! Threads and processes outside of a hang that may still end it by a time limit: a watchdog, an alarm, `timeout`,
//! `join(timeout)`.
//!
//! In: a report; signals that processes handle, and their timers. Out: the party that may end it. A suite that tests
//! locks has deadlocks that it ends itself. The rest of a time limit cannot be read from outside. So it is a reason to
//! be patient, and never a proof that the hang will end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use nix::sys::signal::Signal;

use crate::report::{Process, Report, ThreadState, Wait};

/// Processes that may have an alarm pending: they handle SIGALRM, or have timers of POSIX. The kernel shows no more of that.
pub(super) fn with_alarms(pids: &[i32]) -> BTreeSet<i32> {
    pids.iter().copied().filter(|&pid| handles_alarm(pid) || has_timers(pid)).collect()
}

fn handles_alarm(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    caught & 1 << (Signal::SIGALRM as i32 - 1) != 0
}

fn has_timers(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/timers")).is_ok_and(|timers| !timers.is_empty())
}

/// The strongest party that may still end a hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MayEnd {
    /// Nobody that lockscope can see.
    Nobody,
    /// A thread that sleeps with a time limit: a watchdog, or a heartbeat that has not woken up yet.
    Sleeper,
    /// An alarm, or the main thread of the process or of one that started it, which has a time limit or works.
    InCharge,
}

/// Threads that woke up while the hang stood, and changed nothing about it: heartbeats.
pub(super) type Tickers = BTreeSet<i32>;

/// The party that may still end an incident. `woke` says whether a wait began after the sample before; `alarms` as
/// [`with_alarms`] has it.
pub(super) fn who_may_end(
    report: &Report,
    woke: impl Fn(&Wait) -> bool,
    alarms: &BTreeSet<i32>,
    tickers: &mut Tickers,
) -> MayEnd {
    let hang = report.hang();
    let involved: BTreeSet<&str> = hang.iter().map(|(process, _)| *process).collect();
    let in_charge = with_ancestors(report, &involved);
    let mut limits: BTreeMap<(&str, i32), Vec<&Wait>> = BTreeMap::new();
    for wait in report.waits.iter().filter(|wait| wait.timed) {
        if let Some(tid) = wait.tid {
            limits.entry((wait.process.as_str(), tid)).or_default().push(wait);
        }
    }
    let mut who = MayEnd::Nobody;
    for process in &report.processes {
        let is_in_charge = in_charge.contains(process.id.as_str());
        if is_in_charge && alarms.contains(&process.pid) {
            who = MayEnd::InCharge;
        }
        for thread in &process.threads {
            let key = (process.id.as_str(), thread.tid);
            let limits = limits.get(&key).map(Vec::as_slice).unwrap_or_default();
            let is_main = thread.tid == process.pid && is_in_charge;
            let works = thread.state == ThreadState::Running && !hang.contains(&key);
            if is_main && (!limits.is_empty() || works) {
                who = MayEnd::InCharge;
            }
            if limits.iter().any(|wait| woke(wait)) {
                tickers.insert(thread.tid);
            }
            if !limits.is_empty() && !tickers.contains(&thread.tid) {
                who = who.max(MayEnd::Sleeper);
            }
        }
    }
    who
}

/// These processes and those that started them, up to the command.
fn with_ancestors<'r>(report: &'r Report, these: &BTreeSet<&'r str>) -> BTreeSet<&'r str> {
    let by_pid: BTreeMap<i32, &Process> = report.processes.iter().map(|process| (process.pid, process)).collect();
    let by_id: BTreeMap<&str, &Process> =
        report.processes.iter().map(|process| (process.id.as_str(), process)).collect();
    let mut all = BTreeSet::new();
    for id in these {
        let mut next = by_id.get(id).copied();
        while let Some(process) = next.filter(|process| all.insert(process.id.as_str())) {
            next = process.parent.and_then(|parent| by_pid.get(&parent).copied());
        }
    }
    all
}
