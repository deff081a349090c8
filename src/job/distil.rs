//! A report, as the sample that is kept of it.
//!
//! In: the [`Report`] of one sample of processes of a node. Out: a [`Look`] of those of them that are ranks of a job.
//! It judges nothing: which process is in a deadlock of its own comes with the report.

use std::collections::BTreeSet;

use super::digest::{Doing, Look, Member, RankWait, Seen, Told};
use super::helpers;
use super::inside::Inside;
use super::lines::{doing, is_helper, place, program};
use super::long_message::shortened;
use super::witness::Witness;
use crate::limits::job::{
    MOST_COMPARED, MOST_CONNECTIONS_KEPT, MOST_GROUPS_KEPT, MOST_PEERS, MOST_READY, MOST_WAITING, MOST_WAITS,
};
use crate::report::{
    Certainty, ClusterMember, Connection, Finding, Frame, FrameKind, Gap, Gone, Process, Report, Severity, Thread,
    Verdict, Wait, base_name,
};
use crate::waits::collective::Collective;
use crate::waits::kinds;

/// The sample that is kept of `report`; `saw` names the samples of the first round that were there when it began.
pub(crate) fn distil(report: &Report, round: u8, saw: Seen) -> Look {
    let inside = Inside::of(report);
    let is_member = |process: &&Process| {
        let is_rank = process.identity.as_ref().is_some_and(|identity| identity.rank.is_some());
        is_rank && !is_helper(process) || process.cluster.is_some()
    };
    // Each is compared with all that the report has.
    let facts = report.processes.len() + report.waits.len() + report.holds.len();
    let most = MOST_COMPARED / facts.max(1);
    let (found, mut gaps) = (report.processes.iter().filter(is_member), kept_gaps(report));
    let members: Vec<Member> = found.clone().take(most).map(|process| member(report, &inside, process)).collect();
    if found.clone().nth(most).is_some() {
        let why = format!("lockscope takes in no more than {most} of a report as large as this");
        gaps.push(Gap::new("further ranks of the machine", why));
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
        left_out: Vec::new(),
        classes: None,
        gaps,
    };
    look.named()
}

/// Accounts of the job that others gave meanwhile: NCCL's RAS.
pub(crate) fn witnesses(report: &Report) -> Vec<Witness> {
    let found = report.nccl_ras.iter().map(Witness::of_ras);
    found.filter(|witness| !witness.accounts.is_empty()).collect()
}

/// The lowest rank that waits for its GPU.
pub(crate) fn first_on_gpu<'l>(looks: impl Iterator<Item = &'l Look>) -> Option<u32> {
    let members = looks.flat_map(|look| &look.members).filter(|member| member.on_gpu);
    members.filter_map(|member| member.identity.rank).min()
}

/// Gaps that concern the reading of a process; of sockets and pipes that libraries use there are many, and they say nothing here.
fn kept_gaps(report: &Report) -> Vec<Gap> {
    const SAID: [&str; 3] = ["other end of", "descriptor", "socket"];
    // Processes of a cluster say by names what lasts, so it matters little at which moment of a sample they were read.
    let is_of_cluster = report.processes.iter().any(|process| process.cluster.is_some());
    let is_said = |gap: &&Gap| {
        let is_of_memory = is_of_cluster && gap.what.contains("the memory of process");
        !is_of_memory && !SAID.iter().any(|word| gap.what.contains(word))
    };
    report.gaps.iter().filter(is_said).cloned().collect()
}

fn member<'r>(report: &'r Report, inside: &Inside<'r>, process: &'r Process) -> Member {
    let mut identity = process.identity.clone().unwrap_or_default();
    identity.addresses.clear();
    let main = helpers::main(process);
    let chain = main.map(|main| held_up_by(inside, process, main.tid)).unwrap_or_default();
    let waits = report.waits.iter().filter(|wait| wait.process == process.id);
    let mut waits: Vec<RankWait> =
        waits.filter_map(|wait| rank_wait(inside, process, wait, &chain)).take(MOST_WAITS).collect();
    say_once(&mut waits);
    let held_up_by = helpers::waited_for(report, process, &chain, &waits);
    let (mut verdict, mut finding) = judged(report, process, main);
    if verdict.exit_code() == 0
        && let Some((inner, inside)) = held_up_by.iter().find_map(|helper| judged_helper(report, helper))
    {
        (verdict, finding) = (inner, Some(inside));
    }
    let others = others(report, process, &chain);
    let free_thread = inside.free_thread(process, &others, &waits);
    if let Some(main) = main.filter(|_| process.cluster.is_none()) {
        waits.extend(inside.leads_to(process, main));
        waits.truncate(MOST_WAITS);
    }
    let connections: Vec<&Connection> =
        process.sockets.iter().filter(|socket| socket.state == "established").take(MOST_CONNECTIONS_KEPT).collect();
    let carried: Vec<Option<u64>> = connections.iter().map(|socket| socket.bytes).collect();
    Member {
        pid: process.pid,
        program: program(process),
        identity,
        verdict,
        finding,
        main: main.map_or_else(nobody, |main| doing(report, process, main)),
        waits,
        others: others.len(),
        free_thread,
        connections: connections.iter().map(|socket| (socket.local.clone(), socket.remote.clone())).collect(),
        carried: if carried.iter().any(Option::is_some) { carried } else { Vec::new() },
        threads: process.threads.len(),
        classes: Vec::new(),
        helpers: helpers::kept(report, &held_up_by),
        enqueued: process.enqueued.iter().take(MOST_GROUPS_KEPT).cloned().collect(),
        cluster: process.cluster.as_ref().map(|cluster| of_cluster(report, process, cluster)),
        on_gpu: report
            .waits
            .iter()
            .filter(|wait| wait.process == process.id)
            .any(|wait| inside.resources.get(wait.resource.as_str()).is_some_and(|one| one.properties().is_gpu())),
        witnessed: None,
    }
}

/// The part of a process's role in a cluster that a digest keeps. A few of thousands of tasks that wait for a thread
/// suffice.
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

/// The problem inside a process that works for a rank.
fn judged_helper(report: &Report, helper: &Process) -> Option<(Verdict, Told)> {
    let main = helpers::main(helper);
    let (verdict, finding) = judged(report, helper, main);
    let mut inside = finding.filter(|_| verdict.exit_code() != 0)?;
    let role = main.and_then(|main| main.role.as_deref());
    let called = helpers::called(role, &program(helper), helper.pid);
    inside.message = shortened(&format!("it waits for {called}, in which {}", inside.message));
    Some((verdict, inside))
}

fn nobody() -> Doing {
    Doing { tid: 0, name: String::new(), state: crate::report::ThreadState::Other, place: String::new(), wait: None }
}

/// The verdict on this process alone: the report's verdict is on all sampled processes together.
fn judged(report: &Report, process: &Process, main: Option<&Thread>) -> (Verdict, Option<Told>) {
    // A problem between processes of a cluster is found again over all of them.
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

/// The threads of the process that the thread `main` waits for, itself first.
fn held_up_by<'r>(inside: &Inside<'r>, process: &'r Process, main: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([main]);
    let (mut open, mut seen) = (vec![main], BTreeSet::new());
    while let Some(tid) = open.pop() {
        let waits = inside.waits_of(process, tid).iter().map(|wait| wait.resource.as_str());
        for resource in waits.filter(|resource| seen.insert(*resource)).collect::<Vec<_>>() {
            let holds = inside.holds.get(resource).into_iter().flatten();
            let holds = holds.filter(|hold| hold.process == process.id && hold.certainty > Certainty::Candidate);
            open.extend(holds.filter_map(|hold| hold.tid).filter(|holder| found.insert(*holder)));
        }
    }
    found
}

/// If one thread works on an operation and the main thread waits for that thread, the main thread's wait names the
/// operation.
fn say_once(waits: &mut Vec<RankWait>) {
    let of_main: Vec<Collective> =
        waits.iter().filter(|wait| wait.holds_up_main).filter_map(|wait| wait.collective.clone()).collect();
    waits.retain(|wait| wait.holds_up_main || wait.collective.as_ref().is_none_or(|own| !of_main.contains(own)));
}

fn rank_wait<'r>(inside: &Inside<'r>, process: &'r Process, wait: &'r Wait, chain: &BTreeSet<i32>) -> Option<RankWait> {
    let tid = wait.tid?;
    let resource = inside.resources.get(wait.resource.as_str())?;
    // Nothing else has a back end and an operation in its state.
    let mut collective: Option<Collective> =
        serde_json::from_value(serde_json::Value::Object(resource.state.clone())).ok();
    if let Some(collective) = &mut collective {
        collective.peers.truncate(MOST_PEERS);
    }
    // One of several things would be enough for an event loop: that is no wait for a peer.
    let alone = || inside.waits_of(process, tid).len() == 1;
    // The process at the other end stands behind the addresses, in brackets.
    let addresses = resource.parts.at.as_deref().filter(|_| resource.parts.noun == "TCP");
    let addresses = addresses.map(|at| at.split_once(" (").map_or(at, |(addresses, _)| addresses));
    let of_label = |socket: &&crate::report::Connection| {
        addresses.is_some_and(|at| at == format!("{} to {}", socket.local, socket.remote))
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
        polled_ms: None,
        polled_by: Vec::new(),
        left: false,
        collective,
        connection,
        held_by: None,
    })
}

/// Threads beside the main thread and those that it waits for that run code of the program's, in Python or of its executable, and may do
/// something for other ranks.
fn others<'r>(report: &Report, process: &'r Process, chain: &BTreeSet<i32>) -> Vec<&'r Thread> {
    let edges = report.cycles.iter().flat_map(|cycle| &cycle.edges).filter(|edge| edge.process == process.id);
    let in_cycle: BTreeSet<i32> = edges.filter_map(|edge| edge.waiter).collect();
    let own = program(process);
    let is_own = |frame: &Frame| {
        let module = frame.module.as_deref().map(base_name);
        frame.kind == FrameKind::Python || module == Some(own.as_str())
    };
    let is_programs = |thread: &&Thread| {
        !chain.contains(&thread.tid)
            && thread.role.is_none()
            && thread.frames.iter().any(is_own)
            && !in_cycle.contains(&thread.tid)
    };
    process.threads.iter().filter(is_programs).collect()
}
