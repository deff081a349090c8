//! Judgement: what the graph of one look means, and what to do about it.
//!
//! In: a [`JudgeInput`] of the target, and whether a second look confirmed what the first one saw. Out: a [`Judgement`]
//! with verdict, cycles, findings and the summary, and [`assemble::report`], which makes the report of it. It reads
//! no memory and decodes no lock: what is known stands in the observations.

pub(crate) mod assemble;
mod call_sites;
mod context;
pub(crate) mod findings;
pub(crate) mod names;
mod summary;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

use crate::gpu::GpuCores;
use crate::graph::{Cycle, WaitGraph};
use crate::image::gpu::GpuUse;
use crate::image::{Gap, Image, TaskState, ThreadImage};
use crate::python::Python;
use crate::report::{Finding, Severity, Verdict};
use crate::threads::{Thread, role};
use crate::waits::kinds::Topic;
use crate::waits::{Certainty, Gone, Needs, Observations, Party, ResourceKey, Wait};
use context::Context;
pub(crate) use findings::{Explanation, Fix, explain, explanations};
use names::Names;

/// A thread that used this share of the time between two samples makes progress. A GIL waiter wakes every 5 ms and
/// a driver's event thread every 100 ms to look at a word: that costs well under 1 %, and is no progress.
const BUSY_PERMILLE: u64 = 50;

/// A thread that used less than this share does not count towards what all of them used together: idle timers.
const AWAKE_PERMILLE: u64 = 10;

/// Everything known of one sample of the target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JudgeInput<'a> {
    /// What was captured.
    pub image: &'a Image,
    /// Merged threads of each process, by its position in the image.
    pub threads: &'a [Vec<Thread>],
    /// CPython of each process, likewise.
    pub python: &'a [Option<Python>],
    /// Waits and holds of all processes.
    pub observations: &'a Observations,
    /// How busy the GPUs were, where a thread waits for one.
    pub gpu: Option<&'a GpuUse>,
    /// What ran on the GPUs, where there are cores of them.
    pub gpu_cores: &'a GpuCores,
}

/// What a look means.
#[derive(Debug)]
pub(crate) struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Cycles, the shortest first; one with a GIL begins at the party that holds it.
    pub cycles: Vec<Cycle>,
    /// Findings, the most important first.
    pub findings: Vec<Finding>,
    /// The sentence of the report.
    pub summary: String,
    /// Threads that cannot go on because of the cycles, else of the lost owners, else of the threads of the first finding that
    /// is no mere note; without these themselves.
    pub victims: Vec<Party>,
    /// The role of each thread, in the order of [`JudgeInput::threads`].
    roles: context::Roles,
    /// What could not be decided here.
    pub gaps: Vec<Gap>,
}

/// Judge one look. `confirmed` says whether a second look saw the same (`None` without one: a core, or the first
/// of two). With `Some(false)` whatever needs a second look is dropped, and a gap says so.
pub(crate) fn judge(look: &JudgeInput<'_>, confirmed: Option<bool>) -> Judgement {
    let tids: Vec<Vec<i32>> =
        look.image.processes.iter().map(|process| process.threads.iter().map(|thread| thread.tid).collect()).collect();
    let graph = WaitGraph::new(look.observations, &tids);
    let found = graph.cycles();
    let mut gaps = Vec::new();
    if found.more > 0 || found.exhausted {
        let more = if found.exhausted { format!("at least {} more", found.more) } else { found.more.to_string() };
        gaps.push(Gap::new(
            format!("cycles after the first {}", found.list.len()),
            format!("{more}; the shortest are listed, break these first and look again"),
        ));
    }

    let mut cycles: Vec<Cycle> = once_for_all_ways(look, found.list).into_iter().map(begin_at_the_gil).collect();
    let mut orphans = orphans(look);
    let mut dead_ends = dead_ends(look, !cycles.is_empty() || !orphans.is_empty());
    let weak_cycle = |cycle: &Cycle| {
        cycle.timed || cycle.spinning || cycle.certainty < Certainty::Exact || cycle.crosses_processes()
    };
    if confirmed == Some(false) {
        let before = cycles.len() + orphans.len() + dead_ends.len();
        cycles.retain(|cycle| !weak_cycle(cycle));
        orphans.clear();
        dead_ends.clear();
        if cycles.len() < before {
            gaps.push(Gap::new(
                "a cycle, a lost owner or a wait without end that the first look saw",
                "the second look saw something else, so it is not reported: threads still move. Look again later",
            ));
        }
    }

    let names = Names::new(look);
    let verdict = if cycles.iter().any(|cycle| cycle.proven) {
        Verdict::Deadlock
    } else if !cycles.is_empty() {
        Verdict::SuspectedDeadlock
    } else if orphans.iter().any(|orphan| orphan.blocks_for_ever) {
        Verdict::OrphanedLock
    } else if !dead_ends.is_empty() {
        Verdict::Stuck
    } else if !busy_threads(look, 0).is_empty() {
        Verdict::Running
    } else {
        Verdict::Blocked
    };
    // What is proven comes first, so that the first cycle is the one that the verdict means; then the shortest.
    cycles.sort_by_key(|cycle| !cycle.proven);
    let roots = graph.roots();
    let roles = roles(look);
    let (cycles_of, roles_of) = (cycles.as_slice(), &roles);
    let context =
        Context { look, names: &names, cycles: cycles_of, orphans: &orphans, dead_ends: &dead_ends, roles: roles_of };
    let findings = findings::run(&context);
    let victims = graph.held_up_by(&taking_part(&context, verdict, &findings));
    let summary = summary::sentence(&context, verdict, &roots, &victims);
    Judgement { verdict, cycles, findings, summary, victims, roles, gaps }
}

/// Who takes part in what is wrong: the members of all cycles; else who waits for a lock whose owner is gone; else the threads
/// of the first finding, unless that is a mere note.
fn taking_part(context: &Context<'_>, verdict: Verdict, findings: &[Finding]) -> BTreeSet<Party> {
    if !context.cycles.is_empty() {
        return context.cycles.iter().flat_map(Cycle::parties).collect();
    }
    let waits = &context.look.observations.waits;
    let orphans = context.orphans.iter().filter(|_| verdict.exit_code() != 0);
    let lost: BTreeSet<Party> =
        orphans.flat_map(|orphan| &orphan.waits).map(|wait| waits[*wait].waiter.clone()).collect();
    if !lost.is_empty() {
        return lost;
    }
    let finding = findings.first().filter(|finding| finding.severity != Severity::Note);
    let ids: HashMap<String, usize> =
        (0..context.look.image.processes.len()).map(|process| (context.names.process_id(process), process)).collect();
    let threads = finding.into_iter().flat_map(|finding| &finding.threads);
    threads.filter_map(|one| Some(Party::Thread(*ids.get(&one.process)?, one.tid))).collect()
}

/// The role of each thread, looked up once: that goes through all of its frames.
fn roles(look: &JudgeInput<'_>) -> context::Roles {
    let processes = look.threads.iter().enumerate().map(|(position, threads)| {
        let images = look.image.processes.get(position).map(|process| process.threads.as_slice()).unwrap_or_default();
        let names: HashMap<i32, &str> = images.iter().map(|thread| (thread.tid, thread.name.as_str())).collect();
        let name = |thread: &Thread| names.get(&thread.tid).copied().unwrap_or_default();
        threads.iter().map(|thread| role(thread, name(thread))).collect()
    });
    processes.collect()
}

/// A lock whose owner is gone, with its waiters.
#[derive(Debug)]
pub(crate) struct Orphan {
    /// Position in the holds.
    pub hold: usize,
    /// Why the owner never lets go.
    pub gone: Gone,
    /// Positions of the waits for it.
    pub waits: Vec<usize>,
    /// One of the waiters can't go on without it.
    pub blocks_for_ever: bool,
}

/// A wait that provably nobody can end.
#[derive(Debug)]
pub(crate) struct DeadEnd {
    /// Position among what is hopeless.
    pub hopeless: usize,
    /// Positions of the waits for it; at least one.
    pub waits: Vec<usize>,
}

/// Waits without end. `explained`: whole processes at a standstill are suppressed when a cycle or a lost owner already explains
/// that.
fn dead_ends(look: &JudgeInput<'_>, explained: bool) -> Vec<DeadEnd> {
    let seen = look.observations;
    let is_hopeless = |wait: &Wait| seen.unsatisfiable.iter().any(|hopeless| hopeless.resource == wait.resource);
    // Who waits for whichever of several comes first has hope as long as one of them has.
    let hopes = |waiter: &Party| {
        seen.waits.iter().any(|wait| wait.waiter == *waiter && wait.needs == Needs::Any && !is_hopeless(wait))
    };
    let waits = |resource: &ResourceKey| {
        let of_it = seen.waits.iter().enumerate().filter(|(_, wait)| wait.resource == *resource && !wait.timed);
        let untimed = of_it.filter(|(_, wait)| wait.needs == Needs::All || !hopes(&wait.waiter));
        untimed.map(|(position, _)| position).collect::<Vec<_>>()
    };
    let ends = seen.unsatisfiable.iter().enumerate().filter(|(_, hopeless)| !(explained && hopeless.whole_process));
    ends.map(|(hopeless, one)| DeadEnd { hopeless, waits: waits(&one.resource) })
        .filter(|end| !end.waits.is_empty())
        .collect()
}

fn orphans(look: &JudgeInput<'_>) -> Vec<Orphan> {
    let seen = look.observations;
    let mut orphans = Vec::new();
    for (position, hold) in seen.holds.iter().enumerate() {
        let Some(gone) = hold.gone else { continue };
        let waits: Vec<usize> = seen
            .waits
            .iter()
            .enumerate()
            .filter(|(_, wait)| wait.resource == hold.resource)
            .map(|(position, _)| position)
            .collect();
        if !waits.is_empty() {
            let blocks_for_ever = hold.certainty > Certainty::Candidate
                && waits.iter().any(|wait| seen.waits[*wait].needs == Needs::All && !seen.waits[*wait].timed);
            orphans.push(Orphan { hold: position, gone, waits, blocks_for_ever });
        }
    }
    orphans
}

/// Threads of a process that made progress: on CPU in their own code, or with CPU time used between two samples.
/// One that is known to spin on something waits, however busy it is.
fn busy_threads(look: &JudgeInput<'_>, process: usize) -> Vec<i32> {
    let Some(image) = look.image.processes.get(process) else { return Vec::new() };
    let spinning: BTreeSet<&Party> =
        look.observations.waits.iter().filter(|wait| wait.spinning).map(|wait| &wait.waiter).collect();
    let share = |thread: &ThreadImage| thread.cpu_used.map_or(0, |(used, elapsed)| used * 1000 / elapsed.max(1));
    let candidates = || image.threads.iter().filter(|t| !spinning.contains(&Party::Thread(process, t.tid)));
    // Threads that take turns at a lock work little each and much together.
    let together: u64 = candidates().map(share).filter(|share| *share >= AWAKE_PERMILLE).sum();
    candidates()
        .filter(|thread| {
            let on_cpu = thread.state == TaskState::Running
                && thread.registers.is_some_and(|registers| registers.is_in_user_code());
            let share = share(thread);
            on_cpu || share >= BUSY_PERMILLE || (share >= AWAKE_PERMILLE && together >= BUSY_PERMILLE)
        })
        .map(|thread| thread.tid)
        .collect()
}

/// Of cycles between the same parties that differ only in which of several things is waited for, the first.
fn once_for_all_ways(look: &JudgeInput<'_>, cycles: Vec<Cycle>) -> Vec<Cycle> {
    let needs_any = |cycle: &Cycle| {
        let waits = cycle.edges.iter().filter_map(|edge| edge.wait);
        waits.map(|wait| &look.observations.waits[wait]).any(|wait| wait.needs == Needs::Any)
    };
    let mut seen = BTreeSet::new();
    let parties = |cycle: &Cycle| -> BTreeSet<(Party, Party)> {
        cycle.edges.iter().map(|edge| (edge.waiter.clone(), edge.holder.clone())).collect()
    };
    cycles.into_iter().filter(|cycle| !needs_any(cycle) || seen.insert(parties(cycle))).collect()
}

/// A cycle with a GIL is told from the thread that holds it: that is the one whose call can be changed.
fn begin_at_the_gil(mut cycle: Cycle) -> Cycle {
    if let Some(waits_for_gil) = cycle.edges.iter().position(|edge| edge.resource.kind.topic == Topic::Gil) {
        let count = cycle.edges.len();
        cycle.edges.rotate_left((waits_for_gil + 1) % count);
    }
    cycle
}
