//! A report, as the look that is kept of it.
//!
//! In: the [`Report`] of one look at processes of a node. Out: a [`Look`] at those of them that are ranks of a job. It judges
//! nothing: which process is in a deadlock of its own comes with the report.

use std::collections::{BTreeMap, BTreeSet};

use super::content::hash;
use super::digest::{Class, Doing, Look, Member, RankWait, Seen, Told};
use super::long_message::shortened;
use crate::limits::job::{MOST_CONNECTIONS_KEPT, MOST_GROUPS_KEPT, MOST_PEERS, MOST_READY, MOST_WAITING, MOST_WAITS};
use crate::report::{
    CallSite, Certainty, ClusterMember, Finding, FrameKind, Gap, Gone, Process, Report, Severity, Thread, Verdict,
    Wait, base_name, installed, short_function,
};
use crate::waits::collective::Collective;
use crate::waits::kinds;

/// The look that is kept of `report`; `saw` names the looks of the first round that were there when it began.
pub(crate) fn distil(report: &Report, round: u8, saw: Seen) -> Look {
    let mut classes = Classes::default();
    let mut members = Vec::new();
    for process in &report.processes {
        let is_rank = process.identity.as_ref().is_some_and(|identity| identity.rank.is_some());
        if is_rank || process.cluster.is_some() {
            members.push(member(report, process, &mut classes));
        }
    }
    let look = Look {
        id: String::new(),
        round,
        host: report.host.clone().unwrap_or_default(),
        began: report.capture.began.clone().unwrap_or_default(),
        ended: report.capture.ended.clone().unwrap_or_default(),
        saw: saw.names,
        saw_set: saw.set,
        partial: false,
        members,
        classes: classes.list,
        gaps: kept_gaps(report),
    };
    look.named()
}

/// Gaps that concern the reading of a process; of sockets and pipes that libraries use there are many, and they say nothing here.
fn kept_gaps(report: &Report) -> Vec<Gap> {
    const SAID: [&str; 3] = ["other end of", "descriptor", "socket"];
    // Processes of a cluster say by names what lasts, so it matters little at which moment of a look they were read.
    let is_of_cluster = report.processes.iter().any(|process| process.cluster.is_some());
    let is_said = |gap: &&Gap| {
        let is_of_memory = is_of_cluster && gap.what.contains("the memory of process");
        !is_of_memory && !SAID.iter().any(|word| gap.what.contains(word))
    };
    report.gaps.iter().filter(is_said).cloned().collect()
}

fn member(report: &Report, process: &Process, classes: &mut Classes) -> Member {
    let mut identity = process.identity.clone().unwrap_or_default();
    identity.addresses.clear();
    let main = process.threads.iter().find(|thread| thread.tid == process.pid).or(process.threads.first());
    let chain = main.map(|main| held_up_by(report, process, main.tid)).unwrap_or_default();
    let waits = report.waits.iter().filter(|wait| wait.process == process.id);
    let waits = waits.filter_map(|wait| rank_wait(report, process, wait, &chain)).take(MOST_WAITS).collect();
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for thread in &process.threads {
        *counts.entry(classes.of(report, process, thread)).or_default() += 1;
    }
    let (verdict, finding) = judged(report, process, main);
    let connections = process.sockets.iter().filter(|socket| socket.state == "established");
    Member {
        pid: process.pid,
        program: program(process),
        identity,
        verdict,
        finding,
        main: main.map_or_else(nobody, |main| doing(report, process, main)),
        waits,
        others: others(report, process, &chain),
        connections: connections
            .take(MOST_CONNECTIONS_KEPT)
            .map(|socket| (socket.local.clone(), socket.remote.clone()))
            .collect(),
        classes: counts.into_iter().collect(),
        enqueued: process.enqueued.iter().take(MOST_GROUPS_KEPT).cloned().collect(),
        cluster: process.cluster.as_ref().map(|cluster| of_cluster(report, process, cluster)),
        witnessed: None,
    }
}

/// What is kept of what a process is to a cluster: of thousands of tasks that wait for a thread a few are enough.
fn of_cluster(report: &Report, process: &Process, cluster: &ClusterMember) -> ClusterMember {
    let mut kept = cluster.clone();
    kept.ready_beyond = cluster.ready.len().saturating_sub(MOST_READY);
    kept.ready.truncate(MOST_READY);
    kept.waiting.truncate(MOST_WAITING);
    for running in &mut kept.running {
        let thread = process.threads.iter().find(|thread| thread.tid == running.tid);
        let Some(thread) = thread else { continue };
        let doing = doing(report, process, thread);
        let at = if doing.place.is_empty() { String::new() } else { format!(" at {}", doing.place) };
        let has_gil = report.holds.iter().any(|hold| {
            let is_gil = report.resources.iter().any(|one| one.id == hold.resource && one.kind == kinds::GIL.name);
            is_gil && hold.process == process.id && hold.tid == Some(running.tid)
        });
        running.is_busy = doing.wait.is_none() && doing.state == crate::report::ThreadState::Running;
        running.doing = match doing.wait {
            Some(wait) => format!("waits for {wait}{at}"),
            None => format!("is {}{at}", doing.state.as_str()),
        };
        if has_gil {
            running.doing += ", and has the GIL";
        }
    }
    kept
}

fn program(process: &Process) -> String {
    let path = process.exe.as_deref().or(process.cmdline.first().map(String::as_str));
    path.map_or("process", base_name).to_owned()
}

fn nobody() -> Doing {
    Doing { tid: 0, name: String::new(), state: crate::report::ThreadState::Other, place: String::new(), wait: None }
}

/// The verdict over this process alone: the report's is of all that were looked at together.
fn judged(report: &Report, process: &Process, main: Option<&Thread>) -> (Verdict, Option<Told>) {
    // What threads of several processes of a cluster are in together is found again over all of them.
    let is_of_cluster = process.cluster.is_some();
    let is_own = |of: &str| !is_of_cluster || of == process.id;
    let own = |finding: &&Finding| {
        finding.severity == Severity::Error
            && finding.threads.iter().any(|thread| thread.process == process.id)
            && finding.threads.iter().all(|thread| is_own(&thread.process))
    };
    let finding = report.findings.iter().find(own).map(|finding| Told {
        code: finding.code.clone(),
        title: finding.title.clone(),
        message: shortened(&finding.message),
        certainty: finding.certainty,
        tids: finding.threads.iter().filter(|thread| thread.process == process.id).map(|thread| thread.tid).collect(),
    });
    let is_in = |cycle: &&crate::report::Cycle| {
        cycle.edges.iter().any(|edge| edge.process == process.id)
            && cycle.edges.iter().all(|edge| is_own(&edge.process))
    };
    let cycle = report.cycles.iter().find(is_in);
    if let Some(cycle) = cycle {
        let verdict = match report.verdict {
            Verdict::Deadlock if cycle.certainty < Certainty::Inferred => Verdict::SuspectedDeadlock,
            Verdict::Deadlock => Verdict::Deadlock,
            _ => Verdict::SuspectedDeadlock,
        };
        return (verdict, finding);
    }
    let lost: BTreeSet<&str> = report
        .holds
        .iter()
        .filter(|hold| matches!(hold.gone, Some(Gone::Exited | Gone::LeftInParent | Gone::ProcessDead)))
        .map(|hold| hold.resource.as_str())
        .collect();
    let waits = || report.waits.iter().filter(|wait| wait.process == process.id);
    if report.verdict.exit_code() != 0 && waits().any(|wait| lost.contains(wait.resource.as_str()) && !wait.timed) {
        return (Verdict::OrphanedLock, finding);
    }
    if report.verdict.exit_code() != 0 && finding.is_some() {
        return (Verdict::Stuck, finding);
    }
    let main_waits = main.is_some_and(|main| waits().any(|wait| wait.tid == Some(main.tid)));
    let runs = main.is_some_and(|main| main.state == crate::report::ThreadState::Running);
    (if runs && !main_waits { Verdict::Running } else { Verdict::Blocked }, None)
}

fn doing(report: &Report, process: &Process, thread: &Thread) -> Doing {
    let wait = report.waits.iter().find(|wait| wait.process == process.id && wait.tid == Some(thread.tid));
    let label = |wait: &Wait| label(report, &wait.resource);
    Doing {
        tid: thread.tid,
        name: thread.name.clone(),
        state: thread.state,
        place: place(thread, wait.map_or(&thread.at, |wait| &wait.at)),
        wait: wait.map(label),
    }
}

fn label(report: &Report, resource: &str) -> String {
    let found = report.resources.iter().find(|one| one.id == resource);
    found.map(|one| one.label.clone()).unwrap_or_default()
}

/// The threads of the process that the thread `main` waits for, itself first.
fn held_up_by(report: &Report, process: &Process, main: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([main]);
    let mut open = vec![main];
    while let Some(tid) = open.pop() {
        for wait in report.waits.iter().filter(|wait| wait.process == process.id && wait.tid == Some(tid)) {
            let holds = report.holds.iter().filter(|hold| {
                hold.resource == wait.resource && hold.process == process.id && hold.certainty > Certainty::Candidate
            });
            open.extend(holds.filter_map(|hold| hold.tid).filter(|holder| found.insert(*holder)));
        }
    }
    found
}

fn rank_wait(report: &Report, process: &Process, wait: &Wait, chain: &BTreeSet<i32>) -> Option<RankWait> {
    let tid = wait.tid?;
    let resource = report.resources.iter().find(|one| one.id == wait.resource)?;
    // Nothing else has a back end and an operation in its state.
    let mut collective: Option<Collective> =
        serde_json::from_value(serde_json::Value::Object(resource.state.clone())).ok();
    if let Some(collective) = &mut collective {
        collective.peers.truncate(MOST_PEERS);
    }
    // One of several things would be enough for an event loop: that is no wait for a peer.
    let alone = || report.waits.iter().filter(|one| one.process == wait.process && one.tid == wait.tid).count() == 1;
    let of_label = |socket: &&crate::report::Connection| {
        resource.label.ends_with(&format!("TCP {} to {}", socket.local, socket.remote))
    };
    let connection = (collective.is_none() && alone())
        .then(|| process.sockets.iter().find(of_label))
        .flatten()
        .map(|socket| (socket.local.clone(), socket.remote.clone()));
    if collective.is_none() && connection.is_none() {
        return None;
    }
    let thread = process.threads.iter().find(|thread| thread.tid == tid);
    Some(RankWait {
        tid,
        holds_up_main: chain.contains(&tid),
        label: resource.label.clone(),
        place: thread.map(|thread| place(thread, &wait.at)).unwrap_or_default(),
        timed: wait.timed,
        certainty: wait.certainty,
        since_ms: wait.since_ms,
        collective,
        connection,
    })
}

/// Threads beside the main thread and those that it waits for that run code of the program's in Python, and may do something
/// for other ranks.
fn others(report: &Report, process: &Process, chain: &BTreeSet<i32>) -> usize {
    let waits_in_cycle = |tid: i32| {
        let edges = report.cycles.iter().flat_map(|cycle| &cycle.edges);
        edges.into_iter().any(|edge| edge.process == process.id && edge.waiter == Some(tid))
    };
    let is_programs = |thread: &&Thread| {
        !chain.contains(&thread.tid)
            && thread.role.is_none()
            && thread.frames.iter().any(|frame| frame.kind == FrameKind::Python)
            && !waits_in_cycle(thread.tid)
    };
    process.threads.iter().filter(is_programs).count()
}

/// The line of the program where a thread waits or is, else its innermost function.
fn place(thread: &Thread, site: &CallSite) -> String {
    let told = [site.caller, site.call].into_iter().flatten().filter_map(|index| thread.frames.get(index));
    let own = told.chain(&thread.frames).find_map(|frame| {
        let file = frame.file.as_deref().filter(|file| frame.library.is_none() && installed(file).is_none())?;
        let function = frame.function.as_deref().map(short_function).unwrap_or_default();
        Some(format!("{}:{} {function}", base_name(file), frame.line?).trim_end().to_owned())
    });
    let named = || thread.frames.iter().find_map(|frame| Some(short_function(frame.function.as_deref()?).to_string()));
    own.or_else(named).unwrap_or_default()
}

/// Threads of equal stacks.
#[derive(Debug, Default)]
struct Classes {
    list: Vec<Class>,
    places: BTreeMap<Class, usize>,
}

impl Classes {
    fn of(&mut self, report: &Report, process: &Process, thread: &Thread) -> usize {
        let waits = report.waits.iter().filter(|wait| wait.process == process.id && wait.tid == Some(thread.tid));
        let kind =
            |wait: &Wait| report.resources.iter().find(|one| one.id == wait.resource).map(|one| one.kind.clone());
        let kinds: BTreeSet<String> = waits.clone().filter_map(kind).collect();
        let site = waits.clone().next().map_or(&thread.at, |wait| &wait.at);
        let mut stack = String::new();
        for frame in &thread.frames {
            stack += frame.function.as_deref().or(frame.module.as_deref()).unwrap_or("?");
            if let Some(line) = frame.line.filter(|_| frame.kind == FrameKind::Python) {
                stack += &format!(":{line}");
            }
            stack.push('\n');
        }
        let class = Class {
            name: thread.os_name.clone(),
            state: thread.state.as_str().to_owned(),
            waits: kinds.into_iter().collect(),
            place: place(thread, site),
            stack: format!("{:016x}", hash(stack.as_bytes()) as u64),
        };
        *self.places.entry(class.clone()).or_insert_with(|| {
            self.list.push(class);
            self.list.len() - 1
        })
    }
}
