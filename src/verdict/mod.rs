//! Judgement: what the graph of one sample means, and what to do about it.
//!
//! In: a [`JudgeInput`] of the target, and whether a second sample confirmed what the first one saw. Out: a
//! [`Judgement`] with verdict, cycles, findings and the summary, and [`assemble::report`], which makes the report of
//! it. It reads no memory and decodes no lock: what is known stands in the observations.

pub(crate) mod assemble;
mod call_sites;
mod context;
mod dead_ends;
pub(crate) mod findings;
mod foremost;
pub(crate) mod frames;
mod kept;
pub(crate) mod names;
pub(crate) mod participants;
mod summary;
pub(crate) mod suspicion;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

use crate::gpu::GpuCores;
use crate::graph::{Cycle, CycleEdge, WaitGraph};
use crate::image::gpu::GpuUse;
use crate::image::{Gap, Image, ProcessImage, RegisterSource, TaskState, ThreadImage};
use crate::python::Python;
use crate::report::{Finding, Severity, Verdict};
use crate::threads::{RoleFinder, Thread};
use crate::waits::kinds::Topic;
use crate::waits::{Certainty, Gone, Needs, Observations, Party, ResourceKey, Strength, WakeSource, Waker};
use context::{Context, Roles};
pub(crate) use dead_ends::DeadEnd;
use dead_ends::dead_ends;
pub(crate) use findings::{Explanation, Fix, explain, explanations};
use names::Names;
use suspicion::{Confirmed, Suspicion};

/// A thread that used this share of the time between two samples makes progress. A GIL waiter wakes every 5 ms and
/// a driver's event thread every 100 ms to check a word: that costs well under 1 %, and is no progress.
const BUSY_PERMILLE: u64 = 50;
/// Milliseconds within which a thread that was woken gets a processor, on a machine that is busy.
const JUST_NOW: u64 = 1000;

/// A thread that used less than this share does not count towards what all of them used together: idle timers.
const AWAKE_PERMILLE: u64 = 10;

/// Everything known of one sample of the target.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JudgeInput<'a> {
    /// The captured data.
    pub image: &'a Image,
    /// Merged threads of each process, by its position in the image.
    pub threads: &'a [Vec<Thread>],
    /// CPython of each process, likewise.
    pub python: &'a [Option<Python>],
    /// Waits and holds of all processes.
    pub observations: &'a Observations,
    /// How busy the GPUs were, where a thread waits for one.
    pub gpu: Option<&'a GpuUse>,
    /// Kernels on the GPUs, if there are cores of these.
    pub gpu_cores: &'a GpuCores,
}

/// The meaning of a sample.
#[derive(Debug)]
pub(crate) struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Cycles, the shortest first; one with a GIL begins at the party that holds it.
    pub cycles: Vec<Cycle>,
    /// Findings, the most important first.
    pub findings: Vec<Finding>,
    /// The events, in a sentence or some.
    pub summary: String,
    /// The one sentence that comes first.
    pub sentence: String,
    /// Whom that is about, where it is about others than the main thread, and nothing is wrong.
    pub foremost: Vec<Party>,
    /// The thing that these wait for, where they are tasks.
    pub awaited: Option<ResourceKey>,
    /// Threads that cannot go on because of the cycles, else of the lost owners, else of the waits without end, else of the threads of
    /// the first finding that is no mere note; without these themselves.
    pub victims: Vec<Party>,
    /// The role of each thread, in the order of [`JudgeInput::threads`].
    roles: Roles,
    /// Facts that could not be decided here.
    pub gaps: Vec<Gap>,
    /// Each cycle, each wait for a lock whose owner is gone, and each wait without end. Two samples must show it alike.
    pub suspicions: Vec<Suspicion>,
}

/// The suspicions of one sample, before any of them is confirmed or reported.
#[derive(Debug)]
pub(crate) struct Suspected {
    /// Cycles, in no order.
    pub(crate) cycles: Vec<Cycle>,
    /// Each thing that seems wrong.
    pub(crate) suspicions: Vec<Suspicion>,
}

/// The same with the data for the judgement.
struct Suspects<'s> {
    graph: WaitGraph<'s>,
    cycles: Vec<Cycle>,
    orphans: Vec<Orphan>,
    dead_ends: Vec<DeadEnd>,
    /// Threads that are blocked only because of a reported cycle or orphaned lock.
    explained: BTreeSet<Party>,
    suspicions: Vec<Suspicion>,
    gaps: Vec<Gap>,
}

/// The suspicions of a sample.
pub(crate) fn suspected(input: &JudgeInput<'_>) -> Suspected {
    let Suspects { cycles, suspicions, .. } = suspects(input);
    Suspected { cycles, suspicions }
}

fn suspects<'s>(input: &JudgeInput<'s>) -> Suspects<'s> {
    let living = |process: &ProcessImage| {
        let threads = process.threads.iter().filter(|thread| thread.state != TaskState::Zombie);
        threads.map(|thread| thread.tid).collect()
    };
    let tids: Vec<Vec<i32>> = input.image.processes.iter().map(living).collect();
    let graph = WaitGraph::new(input.observations, &tids);
    let found = graph.cycles();
    let mut gaps = Vec::new();
    if found.more > 0 || found.exhausted {
        let more = if found.exhausted { format!("at least {} more", found.more) } else { found.more.to_string() };
        gaps.push(Gap::new(
            format!("cycles after the first {}", found.list.len()),
            format!("{more}; the shortest are listed, break these first and look again"),
        ));
    }

    let in_order = |cycle| begin_at_the_gil(begin_at_the_oldest(input, cycle));
    let mut cycles: Vec<Cycle> = once_for_all_ways(input, found.list).into_iter().map(in_order).collect();
    cycles.retain(|cycle| !is_wait_for_a_release(input, cycle));
    let waits_for = waits_by_resource(input);
    let orphans = orphans(input, &graph, &waits_for);
    let is_explained = !cycles.is_empty() || !orphans.is_empty();
    let (dead_ends, explained) = dead_ends(input, &graph, &waits_for, is_explained);
    let suspicions = suspicions(input, &cycles, &orphans, &dead_ends);
    Suspects { graph, cycles, orphans, dead_ends, explained, suspicions, gaps }
}

/// Judges one sample. `confirmed` has the results of the samples so far for each suspicion (`None` without a second
/// one: a core, or the first of two). A suspicion that needs a second sample and is not confirmed is dropped with a
/// gap. So is one that a second sample refutes.
pub(crate) fn judge(input: &JudgeInput<'_>, confirmed: Option<&Confirmed>) -> Judgement {
    let Suspects { graph, mut cycles, mut orphans, mut dead_ends, explained, suspicions, mut gaps } = suspects(input);
    let mut unsure: Option<String> = None;
    if let Some(confirmed) = confirmed {
        let names = Names::new(input);
        let roles = Roles::default();
        let context =
            Context { input, names: &names, cycles: &cycles, orphans: &orphans, dead_ends: &dead_ends, roles: &roles };
        unsure = unconfirmed(&context, confirmed);
        let before = suspicions.len();
        keep_confirmed(input, confirmed, &mut cycles, &mut orphans, &mut dead_ends);
        let is_fewer = self::suspicions(input, &cycles, &orphans, &dead_ends).len() < before;
        if is_fewer && unsure.is_none() {
            gaps.push(Gap::new(
                "a cycle, a lost owner or a wait without end that the first look saw",
                "the waits in it ended meanwhile, so it is not reported: these threads still move. Look again later",
            ));
        }
    }

    let names = Names::new(input);
    let verdict = if cycles.iter().any(|cycle| cycle.proven) {
        Verdict::Deadlock
    } else if !cycles.is_empty() {
        Verdict::SuspectedDeadlock
    } else if orphans.iter().any(|orphan| orphan.blocks_for_ever) {
        Verdict::OrphanedLock
    } else if !dead_ends.is_empty() {
        Verdict::Stuck
    } else if !busy_threads(input, 0).is_empty() {
        Verdict::Running
    } else {
        Verdict::Blocked
    };
    // Proven cycles come first, so that the first cycle is the one that the verdict means; then the shortest.
    cycles.sort_by_key(|cycle| !cycle.proven);
    let roots = graph.roots();
    let roles = roles(input);
    let (cycles_of, roles_of) = (cycles.as_slice(), &roles);
    let context =
        Context { input, names: &names, cycles: cycles_of, orphans: &orphans, dead_ends: &dead_ends, roles: roles_of };
    let mut findings = findings::run(&context);
    let taking_part = taking_part(&context, verdict, &findings);
    let mut held_up: BTreeSet<Party> = graph.held_up_by(&taking_part).into_iter().collect();
    if verdict.exit_code() != 0 {
        held_up.extend(graph.held_up_by(&explained));
        held_up.extend(explained);
    }
    let victims: Vec<Party> = held_up.into_iter().filter(|party| !taking_part.contains(party)).collect();
    let mut summary = summary::sentence(&context, verdict, &roots, &victims);
    let mut sentence = summary::first_sentence(&context, verdict, &findings, &roots);
    if let Some(unsure) = unsure.filter(|_| verdict.exit_code() == 0) {
        summary = format!("{unsure} {summary}");
        sentence = unsure;
    }
    // Threads of the first sentence, where no finding makes it.
    let foremost = match (verdict, findings.iter().any(|finding| finding.severity != Severity::Note)) {
        (Verdict::Blocked, false) => foremost::of(&context),
        _ => None,
    };
    let told: Vec<Party> = match &foremost {
        Some(foremost) => foremost.parties.clone(),
        None if taking_part.is_empty() => image_main(input).into_iter().collect(),
        None => taking_part.iter().cloned().collect(),
    };
    if let Some(foremost) = &foremost {
        sentence = foremost.sentence.clone();
    }
    if verdict != Verdict::Running {
        let dead = foremost::dead_children(&context, &told);
        if let Some(first) = findings.first_mut().filter(|first| first.title == sentence) {
            first.title += &dead;
        }
        sentence += &dead;
    }
    let (foremost, awaited) = foremost.map(|one| (one.parties, one.awaited)).unwrap_or_default();
    let passed_over = input.image.kernel.passed_over;
    if verdict.exit_code() == 0 && passed_over > 0 {
        let were = if passed_over == 1 { "child process was" } else { "child processes were" };
        sentence += &format!("; {passed_over} {were} not looked at: --tree");
    }
    gaps.extend(kept_by_wake_source(&context, &graph));
    Judgement { verdict, cycles, findings, summary, sentence, foremost, awaited, victims, roles, gaps, suspicions }
}

/// Each thing that seems wrong.
fn suspicions(input: &JudgeInput<'_>, cycles: &[Cycle], orphans: &[Orphan], dead_ends: &[DeadEnd]) -> Vec<Suspicion> {
    let mut all: Vec<Suspicion> = cycles.iter().map(|cycle| suspicion::of_cycle(input, cycle)).collect();
    for orphan in orphans {
        all.extend(orphan.waits.iter().map(|wait| suspicion::of_orphan(input, orphan, *wait)));
    }
    all.extend(dead_ends.iter().flat_map(|end| suspicion::of_dead_end(input, end)));
    all
}

/// Whether a cycle is shown by several samples only.
fn is_weak(cycle: &Cycle) -> bool {
    cycle.timed || cycle.spinning || cycle.certainty < Certainty::Exact || cycle.crosses_processes()
}

/// Drop what the samples do not confirm. An exact cycle of one process is taken at its word by one sample, until a
/// later one shows that its members moved.
fn keep_confirmed(
    input: &JudgeInput<'_>,
    confirmed: &Confirmed,
    cycles: &mut Vec<Cycle>,
    orphans: &mut Vec<Orphan>,
    dead_ends: &mut Vec<DeadEnd>,
) {
    cycles.retain(|cycle| {
        let suspicion = suspicion::of_cycle(input, cycle);
        confirmed.confirmed.contains(&suspicion) || !is_weak(cycle) && !confirmed.refuted.contains(&suspicion)
    });
    for at in (0..orphans.len()).rev() {
        let waits = orphans[at].waits.clone();
        let stays = |wait: &usize| confirmed.confirmed.contains(&suspicion::of_orphan(input, &orphans[at], *wait));
        let waits: Vec<usize> = waits.into_iter().filter(stays).collect();
        match waits.is_empty() {
            true => drop(orphans.remove(at)),
            false => orphans[at].waits = waits,
        }
    }
    for at in (0..dead_ends.len()).rev() {
        let suspicions = suspicion::of_dead_end(input, &dead_ends[at]);
        let waits = dead_ends[at].waits.iter().zip(suspicions);
        let waits: Vec<usize> =
            waits.filter(|(_, suspicion)| confirmed.confirmed.contains(suspicion)).map(|(wait, _)| *wait).collect();
        match waits.is_empty() {
            true => drop(dead_ends.remove(at)),
            false => dead_ends[at].waits = waits,
        }
    }
}

/// Suspicions that are neither confirmed nor refuted, because the samples were incomplete: a sentence about the first,
/// and the advice.
fn unconfirmed(context: &Context<'_>, confirmed: &Confirmed) -> Option<String> {
    let input = context.input;
    let is_open =
        |suspicion: &Suspicion| !confirmed.confirmed.contains(suspicion) && !confirmed.refuted.contains(suspicion);
    let cycle = context.cycles.iter().find(|cycle| is_weak(cycle) && is_open(&suspicion::of_cycle(input, cycle)));
    let orphan = || {
        let open =
            |orphan: &&Orphan| orphan.waits.iter().all(|wait| is_open(&suspicion::of_orphan(input, orphan, *wait)));
        context.orphans.iter().find(open).map(|orphan| summary::orphan_sentence(context, orphan))
    };
    let what = cycle.map(|cycle| summary::cycle_sentence(context, cycle)).or_else(orphan)?;
    Some(format!(
        "Not confirmed, since the look was incomplete: {what} Look again, with --max-pause 1s or as root, to be sure."
    ))
}

/// Waits that only something unlikely keeps from being called stuck, such as a signal that another process would have
/// to send: what that is, for the first of them.
fn kept_by_wake_source(context: &Context<'_>, graph: &WaitGraph<'_>) -> Option<Gap> {
    let seen = context.input.observations;
    if !context.cycles.is_empty() || !context.orphans.is_empty() || !context.dead_ends.is_empty() {
        return None;
    }
    let is_unlikely = |wake_source: &&WakeSource| !matches!(wake_source.by, Waker::Party(_));
    if !seen.wake_sources.iter().any(|wake_source| is_unlikely(&wake_source)) {
        return None;
    }
    let lasts = |key: &ResourceKey| seen.waits.iter().any(|wait| wait.resource == *key && wait.has_one_end());
    let told =
        seen.known_wakers.iter().filter(|known_wakers| known_wakers.is_reportable && lasts(&known_wakers.resource));
    graph.kept_by_wake_source(told.map(|known_wakers| &known_wakers.resource)).into_iter().find_map(|key| {
        let wake_source =
            seen.wake_sources.iter().filter(is_unlikely).find(|wake_source| wake_source.resource == *key)?;
        Some(Gap::new(format!("who could give {}", context.names.resource(key)), wake_source.what.clone()))
    })
}

/// The participants: the members of all cycles; else the waiters for a lock whose owner is gone; else the threads of
/// all waits without end; else those of the first finding, unless that is a mere note.
fn taking_part(context: &Context<'_>, verdict: Verdict, findings: &[Finding]) -> BTreeSet<Party> {
    if !context.cycles.is_empty() {
        return context.cycles.iter().flat_map(Cycle::parties).collect();
    }
    let waits = &context.input.observations.waits;
    let orphans = context.orphans.iter().filter(|_| verdict.exit_code() != 0);
    let lost: BTreeSet<Party> =
        orphans.flat_map(|orphan| &orphan.waits).map(|wait| waits[*wait].waiter.clone()).collect();
    if !lost.is_empty() {
        return lost;
    }
    let without_end: BTreeSet<Party> =
        context.dead_ends.iter().flat_map(|end| &end.waits).map(|wait| waits[*wait].waiter.clone()).collect();
    let finding = findings.first().filter(|finding| finding.severity != Severity::Note);
    let ids: HashMap<String, usize> =
        (0..context.input.image.processes.len()).map(|process| (context.names.process_id(process), process)).collect();
    let threads = finding.into_iter().flat_map(|finding| &finding.threads);
    without_end
        .into_iter()
        .chain(threads.filter_map(|one| Some(Party::Thread(*ids.get(&one.process)?, one.tid))))
        .collect()
}

/// The main thread of the first process.
fn image_main(input: &JudgeInput<'_>) -> Option<Party> {
    input.image.processes.first().map(|process| Party::Thread(0, process.pid))
}

/// The role of each thread, looked up once: that goes through all of its frames.
fn roles(input: &JudgeInput<'_>) -> Roles {
    let mut finder = RoleFinder::default();
    let processes = input.threads.iter().enumerate().map(|(position, threads)| {
        let images = input.image.processes.get(position).map(|process| process.threads.as_slice()).unwrap_or_default();
        let names: HashMap<i32, &str> = images.iter().map(|thread| (thread.tid, thread.name.as_str())).collect();
        let name = |thread: &Thread| names.get(&thread.tid).copied().unwrap_or_default();
        threads.iter().map(|thread| finder.of(thread, name(thread))).collect()
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

/// The positions of the waits for each thing: thousands may wait for thousands.
type WaitsFor<'a> = HashMap<&'a ResourceKey, Vec<usize>>;

fn waits_by_resource<'a>(input: &JudgeInput<'a>) -> WaitsFor<'a> {
    let mut waits = WaitsFor::new();
    for (position, wait) in input.observations.waits.iter().enumerate() {
        waits.entry(&wait.resource).or_default().push(position);
    }
    waits
}

fn orphans(input: &JudgeInput<'_>, graph: &WaitGraph<'_>, waits_for: &WaitsFor<'_>) -> Vec<Orphan> {
    let seen = input.observations;
    let mut orphans = Vec::new();
    for (position, hold) in seen.holds.iter().enumerate() {
        let Some(gone) = hold.gone else { continue };
        let waits = waits_for.get(&hold.resource).cloned().unwrap_or_default();
        if !waits.is_empty() {
            let blocks_for_ever = hold.is_known()
                && waits.iter().map(|wait| &seen.waits[*wait]).any(|wait| {
                    let may_end = graph.wake_sources(&wait.resource, &wait.waiter).next().is_some();
                    wait.needs == Needs::All && !wait.timed && !may_end
                });
            orphans.push(Orphan { hold: position, gone, waits, blocks_for_ever });
        }
    }
    orphans
}

/// Threads of a process that made progress: on CPU in their own code, or about to be, or with CPU time used between two samples, or taking turns
/// at locks, however short these are. One that is known to spin on something waits, however busy it is.
fn busy_threads(input: &JudgeInput<'_>, process: usize) -> Vec<i32> {
    let Some(image) = input.image.processes.get(process) else { return Vec::new() };
    let spinning: BTreeSet<&Party> =
        input.observations.waits.iter().filter(|wait| wait.spinning).map(|wait| &wait.waiter).collect();
    let waiting: BTreeSet<&Party> = input.observations.waits.iter().map(|wait| &wait.waiter).collect();
    let share = |thread: &ThreadImage| thread.cpu_used.map_or(0, |(used, elapsed)| used * 1000 / elapsed.max(1));
    let candidates = || image.threads.iter().filter(|t| !spinning.contains(&Party::Thread(process, t.tid)));
    // Threads that take turns at a lock work little each and much together.
    let together: u64 = candidates().map(share).filter(|share| *share >= AWAKE_PERMILLE).sum();
    // A signal may wake one again and again; several that ask for locks of native code anew have had them in between.
    let is_for_lock = |tid: i32| {
        let own = input.observations.waits.iter().filter(|wait| wait.waiter == Party::Thread(process, tid));
        own.into_iter().any(|wait| wait.resource.kind.is_native_lock_with_holder() && !wait.timed)
    };
    let turning: BTreeSet<i32> =
        candidates().filter(|one| one.took_turns() && is_for_lock(one.tid)).map(|one| one.tid).collect();
    candidates()
        .filter(|thread| {
            let takes_turns = turning.len() > 1 && turning.contains(&thread.tid);
            let waits = || waiting.contains(&Party::Thread(process, thread.tid));
            let is_in_user_code = thread.registers.is_some_and(|registers| registers.is_in_user_code());
            let on_cpu = thread.was_at_work() && (thread.state == TaskState::Running && is_in_user_code || !waits());
            let share = share(thread);
            // It waits for a processor alone. One that has long slept in such a call was left there by a mistake of the program's.
            let is_woken = thread.source == RegisterSource::Stop
                && thread.asleep_ms.is_some_and(|asleep| asleep < JUST_NOW)
                && input.observations.woken.contains(&Party::Thread(process, thread.tid));
            takes_turns
                || on_cpu
                || is_woken
                || share >= BUSY_PERMILLE
                || (share >= AWAKE_PERMILLE && together >= BUSY_PERMILLE)
        })
        .map(|thread| thread.tid)
        .collect()
}

/// Cycles between the same parties may differ only in the choice among several resources. Keeps the first of them.
fn once_for_all_ways(input: &JudgeInput<'_>, cycles: Vec<Cycle>) -> Vec<Cycle> {
    let needs_any = |cycle: &Cycle| {
        let waits = cycle.edges.iter().filter_map(|edge| edge.wait);
        waits.map(|wait| &input.observations.waits[wait]).any(|wait| wait.needs == Needs::Any)
    };
    let mut seen = BTreeSet::new();
    let parties = |cycle: &Cycle| -> BTreeSet<(Party, Party)> {
        cycle.edges.iter().map(|edge| (edge.waiter.clone(), edge.holder.clone())).collect()
    };
    cycles.into_iter().filter(|cycle| !needs_any(cycle) || seen.insert(parties(cycle))).collect()
}

/// Whether a thread alone, with a time limit, asks once more for a lock that the code says it took, and that another
/// thread may release: a thread that such a release wakes waits in this way, as conditions that are made of plain locks
/// do (gevent's for its pool of threads).
fn is_wait_for_a_release(input: &JudgeInput<'_>, cycle: &Cycle) -> bool {
    let [edge] = cycle.edges.as_slice() else { return false };
    let hold = edge.hold.map(|hold| &input.observations.holds[hold]);
    let may_be_released = hold.is_some_and(|hold| hold.strength < Strength::Sole);
    cycle.timed && may_be_released
}

/// A cycle begins at the thread that has lived longest: ids of threads start again at the bottom once the kernel has used the
/// highest.
fn begin_at_the_oldest(input: &JudgeInput<'_>, mut cycle: Cycle) -> Cycle {
    let age = |edge: &CycleEdge| {
        let (Party::Thread(process, tid), true) = (&edge.waiter, cycle.edges.len() > 1) else { return None };
        let process = input.image.processes.get(*process)?;
        let position = process.threads.binary_search_by_key(tid, |thread| thread.tid).ok()?;
        Some((process.pid, *tid != process.pid, process.threads[position].start_ticks, *tid))
    };
    let ages: Option<Vec<_>> = cycle.edges.iter().map(age).collect();
    let oldest = ages.and_then(|ages| (0..ages.len()).min_by_key(|position| ages[*position]));
    cycle.edges.rotate_left(oldest.unwrap_or_default());
    cycle
}

/// A cycle with a GIL begins at the thread that holds it, because that thread's call can be changed.
fn begin_at_the_gil(mut cycle: Cycle) -> Cycle {
    if let Some(waits_for_gil) = cycle.edges.iter().position(|edge| edge.resource.kind.topic == Topic::Gil) {
        let count = cycle.edges.len();
        cycle.edges.rotate_left((waits_for_gil + 1) % count);
    }
    cycle
}
