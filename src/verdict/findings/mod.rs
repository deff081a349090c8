//! Findings: recognised situations, each with its rule, its help, its explanation and public reports of the same.
//!
//! In: the judged look. Out: findings of the report, and the texts of `lockscope explain`. A folder a
//! finding: the rule (`mod.rs`), its text (`explain.md`) and a program that hangs so (`example.*`). The order of the list is
//! their rank, and the first rule that recognises a cycle explains it alone.

mod collective_mismatch;
mod cooperative_launch_starved;
mod cuda_after_fork;
mod cuda_call_at_exit;
mod cuda_call_in_host_function;
mod dead_process_holds_lock;
mod driver_library_mismatch;
mod event_loop_blocked;
mod executor_self_wait;
pub(crate) mod explanation;
mod failed_launch;
mod file_lock_cycle;
mod finalizing_interpreter;
mod fork_orphaned_lock;
mod gil_held_in_blocking_cuda_call;
mod gil_vs_driver_callback;
mod gil_vs_host_function;
mod gil_vs_native_lock;
mod gpu_error_behind_hang;
mod import_cycle;
mod join_cycle;
mod kernel_never_ends;
mod kernels;
mod launch_blocking_with_nccl;
mod lazy_loading_vs_running_kernel;
mod loader_lock_cycle;
mod lock_order_cycle;
mod lock_order_inversion;
mod lock_taken_again_in_finaliser;
mod lock_taken_again_in_signal_handler;
mod missing_rank;
mod nobody_left_to_wake;
mod owner_exited;
mod pipe_cycle;
mod pipe_without_writer;
mod pool_work_cycle;
mod pool_worker_died;
mod rank_cycle;
mod reader_behind_writer;
mod self_deadlock;
mod spinning_on_memory;
mod static_init_cycle;
mod stop_the_world_blocked;
mod stream_waits_value;
#[cfg(test)]
mod tests;
mod toolkits;
mod traced_or_stopped;
mod waiting_for_gpu;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::context::{Context, Draft};
use super::names::{is_driver_function, source_line};
use super::{Orphan, summary};
use crate::graph::{Cycle, CycleEdge};
use crate::limits::verdict::{NAMED_IN_A_TITLE, OUTERMOST_FRAMES};
use crate::report::{Finding, Severity};
use crate::threads::{Frame, FrameKind};
use crate::waits::c_library::is_c_library;
use crate::waits::kinds::{Kind, Topic};
use crate::waits::model::Role;
use crate::waits::{Certainty, Gone, Hold, Party, ResourceKey};
pub(crate) use explanation::{Example, Explanation, Fix, Requirement, Toolkit};

struct Rule {
    code: &'static str,
    severity: Severity,
    /// The text beside the rule, as [`explanation`] reads it.
    explanation: &'static str,
    example: Example,
    rule: fn(&Context<'_>) -> Vec<Draft>,
}

const REGISTRY: &[Rule] = &[
    cuda_call_in_host_function::RULE,
    gil_vs_host_function::RULE,
    gil_vs_driver_callback::RULE,
    stop_the_world_blocked::RULE,
    loader_lock_cycle::RULE,
    static_init_cycle::RULE,
    pipe_cycle::RULE,
    file_lock_cycle::RULE,
    import_cycle::RULE,
    executor_self_wait::RULE,
    join_cycle::RULE,
    lock_taken_again_in_signal_handler::RULE,
    lock_taken_again_in_finaliser::RULE,
    self_deadlock::RULE,
    gil_vs_native_lock::RULE,
    pool_work_cycle::RULE,
    lock_order_cycle::RULE,
    cuda_after_fork::RULE,
    fork_orphaned_lock::RULE,
    finalizing_interpreter::RULE,
    owner_exited::RULE,
    dead_process_holds_lock::RULE,
    pipe_without_writer::RULE,
    pool_worker_died::RULE,
    nobody_left_to_wake::RULE,
    event_loop_blocked::RULE,
    cuda_call_at_exit::RULE,
    failed_launch::RULE,
    gpu_error_behind_hang::RULE,
    lazy_loading_vs_running_kernel::RULE,
    launch_blocking_with_nccl::RULE,
    gil_held_in_blocking_cuda_call::RULE,
    collective_mismatch::RULE,
    missing_rank::RULE,
    rank_cycle::RULE,
    driver_library_mismatch::RULE,
    traced_or_stopped::RULE,
    reader_behind_writer::RULE,
    stream_waits_value::RULE,
    cooperative_launch_starved::RULE,
    spinning_on_memory::RULE,
    kernel_never_ends::RULE,
    waiting_for_gpu::RULE,
    lock_order_inversion::RULE,
];

/// The explanation of a finding.
pub(crate) fn explain(code: &str) -> Option<&'static Explanation> {
    explanations().find(|explanation| explanation.code == code)
}

/// All explanations, in order of rank.
pub fn explanations() -> impl Iterator<Item = &'static Explanation> {
    static ALL: LazyLock<Vec<Explanation>> = LazyLock::new(|| REGISTRY.iter().map(|rule| rule.read().0).collect());
    ALL.iter()
}

impl Rule {
    /// Its text, and what is wrong with that.
    fn read(&self) -> (Explanation, Vec<String>) {
        explanation::parse(self.code, self.severity, self.example, self.explanation)
    }
}

/// A function that the driver called back.
struct Callback {
    /// `its callback <lambda> at compiler.py:288`.
    function: String,
    /// The entry point that called it.
    api: String,
}

/// Run all rules.
pub(super) fn run(context: &Context<'_>) -> Vec<Finding> {
    let mut claimed = BTreeSet::new();
    let mut findings = Vec::new();
    for (rule, explanation) in REGISTRY.iter().zip(explanations()) {
        for draft in (rule.rule)(context) {
            if draft.cycle.is_some_and(|cycle| !claimed.insert(cycle)) {
                continue;
            }
            findings.push((draft.cycle.unwrap_or(usize::MAX), finish(context, explanation, draft)));
        }
    }
    // Errors first; among them in the order of the cycles, so that the first finding explains the first cycle.
    findings.sort_by_key(|(cycle, finding)| (finding.severity, *cycle));
    findings.into_iter().map(|(_, finding)| finding).collect()
}

fn finish(context: &Context<'_>, explanation: &Explanation, draft: Draft) -> Finding {
    let certainty = certainty(context, &draft);
    let mut threads = Vec::new();
    for party in &draft.parties {
        threads.extend(context.names.reference(party).filter(|reference| !threads.contains(reference)));
    }
    let mut resources: Vec<String> = Vec::new();
    for key in &draft.resources {
        let id = context.names.resource_id(key);
        if !resources.contains(&id) {
            resources.push(id);
        }
    }
    // The public reports are about the general case.
    let references = if draft.help.is_empty() { explanation.references.clone() } else { Vec::new() };
    let help = match draft.help.is_empty() {
        true => {
            let mut help = advice(context, explanation, &draft);
            if let (Some(general), Some(named)) = (help.first_mut(), draft.first_help) {
                *general = named;
            }
            help
        }
        false => draft.help,
    };
    Finding {
        code: explanation.code.into(),
        severity: explanation.severity,
        class: None,
        title: draft.title.unwrap_or_else(|| explanation.title.clone()),
        message: draft.message,
        certainty,
        threads,
        resources,
        ruled_out: ruled_out(context, &draft.resources),
        help,
        references,
    }
}

/// What could have ended a wait without end for one of these, and why that cannot.
fn ruled_out(context: &Context<'_>, resources: &[ResourceKey]) -> Vec<String> {
    let ends = context.dead_ends.iter().map(|end| &context.input.observations.enclosed[end.enclosed]);
    ends.filter(|one| resources.contains(&one.resource)).flat_map(|one| one.ruled_out.iter().cloned()).collect()
}

/// What to change: the part for everybody, then those of the toolkits that the parties use.
fn advice(context: &Context<'_>, explanation: &Explanation, draft: &Draft) -> Vec<String> {
    let used = toolkits::of(context, &draft.parties, &draft.resources);
    let fitting = explanation.fixes.iter().filter(|fix| used.contains(&fix.with));
    explanation.help.iter().chain(fitting.flat_map(|fix| &fix.help)).cloned().collect()
}

/// How sure a finding is: as its cycle is; else as the weakest of the waits and holds between its parties and resources. That a
/// whole process stands still is inferred, and so is what no wait and no hold shows.
fn certainty(context: &Context<'_>, draft: &Draft) -> Certainty {
    if let Some(cycle) = draft.cycle.and_then(|cycle| context.cycles.get(cycle)) {
        return cycle.certainty;
    }
    let seen = context.input.observations;
    let parties: BTreeSet<&Party> = draft.parties.iter().collect();
    let resources: BTreeSet<&ResourceKey> = draft.resources.iter().collect();
    let ends = context.dead_ends.iter().map(|end| &seen.enclosed[end.enclosed]);
    let ends = ends.filter(|one| resources.contains(&one.resource)).map(|one| one.certainty);
    let takes_part = |party: &Party, resource: &ResourceKey| parties.contains(party) && resources.contains(resource);
    let waits = seen.waits.iter().filter(|wait| takes_part(&wait.waiter, &wait.resource)).map(|wait| wait.certainty);
    let of_holds = |hold: &&Hold| {
        takes_part(&hold.holder, &hold.resource) || hold.gone.is_some() && resources.contains(&hold.resource)
    };
    let holds = seen.holds.iter().filter(of_holds).map(|hold| hold.certainty);
    waits.chain(holds).chain(ends).min().unwrap_or(Certainty::Inferred)
}

/// The Python function that a function of CPython called, by the beginning of that one's name without underscores, and the
/// position of the caller's frame.
fn called_by(frames: &[Frame], callers: &[&str]) -> Option<(usize, String)> {
    let calls = |frame: &Frame| {
        let name = frame.function.as_deref().unwrap_or_default().trim_start_matches('_');
        frame.kind == FrameKind::Native && callers.iter().any(|caller| name.starts_with(caller))
    };
    let caller = frames.iter().position(calls)?;
    let called = frames[..caller].iter().rfind(|frame| frame.kind == FrameKind::Python)?;
    Some((caller, called.function.as_deref()?.to_owned()))
}

/// Whether a frame is the C library's.
fn is_libc(frame: &Frame) -> bool {
    frame.module.as_deref().is_some_and(is_c_library)
}

impl Context<'_> {
    fn cycle_drafts(&self, is: impl Fn(&Cycle) -> bool) -> Vec<Draft> {
        let cycles = self.cycles.iter().enumerate().filter(|(_, cycle)| is(cycle));
        cycles
            .map(|(position, cycle)| {
                let mut message = summary::cycle_sentence(self, cycle);
                if cycle.timed {
                    message += " A wait in this cycle has a time-out: it ends by itself, and may begin again.";
                }
                Draft {
                    cycle: Some(position),
                    title: None,
                    message,
                    parties: cycle.parties().collect(),
                    resources: cycle.edges.iter().map(|edge| edge.resource.clone()).collect(),
                    help: Vec::new(),
                    first_help: None,
                }
            })
            .collect()
    }

    /// The things of a cycle in a title: "`inventory.lock` and `billing.lock`", "16 locks".
    fn things_of(&self, cycle: &Cycle) -> String {
        let mut names: Vec<String> = Vec::new();
        for edge in &cycle.edges {
            let name = self.names.bare(&edge.resource);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let are_nameless = cycle.edges.iter().all(|edge| self.names.label(&edge.resource).name.is_none());
        if let (Some(first), true) = (cycle.edges.first(), are_nameless && names.len() > 1) {
            let noun = self.names.label(&first.resource).noun;
            let ending = if noun.ends_with('x') { "es" } else { "s" };
            let is_one_kind = cycle.edges.iter().all(|edge| edge.resource.kind == first.resource.kind);
            let noun = if is_one_kind { format!("{noun}{ending}") } else { "locks".to_owned() };
            return format!("{} {noun}", names.len());
        }
        // In the order in which the first one takes them: what it has, then what it waits for.
        names.rotate_right(1);
        match names.as_slice() {
            [first, middle @ .., last] if names.len() <= NAMED_IN_A_TITLE => {
                let middle: String = middle.iter().map(|name| format!(", {name}")).collect();
                format!("{first}{middle} and {last}")
            }
            [only] => only.clone(),
            many => format!("{} locks", many.len()),
        }
    }

    /// Who waits in a cycle of one, and for what it has itself: "MainThread waits for `Cache._lock`".
    fn again(&self, cycle: &Cycle) -> Option<String> {
        let [edge] = cycle.edges.as_slice() else { return None };
        Some(format!("{} waits for {}", self.names.party_by_name(&edge.waiter), self.names.bare(&edge.resource)))
    }

    /// Give drafts of cycles a title that names what is about.
    fn titled(&self, mut drafts: Vec<Draft>, title: impl Fn(&Cycle) -> Option<String>) -> Vec<Draft> {
        for draft in &mut drafts {
            let cycle = draft.cycle.and_then(|position| self.cycles.get(position));
            draft.title = draft.title.take().or_else(|| cycle.and_then(&title));
        }
        drafts
    }

    fn orphan_drafts(&self, gone: Gone) -> Vec<Draft> {
        self.orphan_drafts_of(self.orphans.iter().filter(|orphan| orphan.gone == gone))
    }

    fn orphan_drafts_of<'o>(&self, orphans: impl Iterator<Item = &'o Orphan>) -> Vec<Draft> {
        let seen = self.input.observations;
        orphans
            .map(|orphan| Draft {
                title: self.title_of_orphan(orphan),
                message: summary::orphan_sentence(self, orphan),
                parties: orphan.waits.iter().map(|wait| seen.waits[*wait].waiter.clone()).collect(),
                resources: vec![seen.holds[orphan.hold].resource.clone()],
                ..Draft::default()
            })
            .collect()
    }

    /// "`cache_lock` was copied by fork while another thread held it".
    fn title_of_orphan(&self, orphan: &Orphan) -> Option<String> {
        let hold = self.input.observations.holds.get(orphan.hold)?;
        let name = self.names.bare(&hold.resource);
        match orphan.gone {
            Gone::LeftInParent if hold.resource.kind.is_lock() => {
                Some(format!("{name} was copied by fork while another thread held it"))
            }
            Gone::Exited if hold.resource.kind.is_lock() => {
                Some(format!("the owner of {name} exited without releasing it"))
            }
            Gone::ProcessDead if hold.resource.kind.is_lock() => Some(format!("a dead process holds {name}")),
            _ => None,
        }
    }

    /// The waits without end for resources of some kinds, but those for results whose tasks are lost.
    fn dead_end_drafts(&self, is: impl Fn(&Kind) -> bool) -> Vec<Draft> {
        self.drafts_of_dead_ends(|key| is(key.kind) && !self.is_lost_task(key))
    }

    /// Whether somebody runs an event loop.
    fn runs_a_loop(&self, party: &Party) -> bool {
        let seen = self.input.observations;
        let loops = seen.resources.iter().filter(|resource| matches!(resource.role, Some(Role::EventLoop { .. })));
        let mut holds = loops.flat_map(|resource| seen.holds.iter().filter(move |hold| hold.resource == resource.key));
        holds.any(|hold| hold.holder == *party)
    }

    /// Whether a resource is a result whose task is lost.
    fn is_lost_task(&self, key: &ResourceKey) -> bool {
        let resource = self.names.described(key);
        resource.is_some_and(|resource| resource.role == Some(Role::LostTask))
    }

    /// The waits without end for some resources.
    fn drafts_of_dead_ends(&self, is: impl Fn(&ResourceKey) -> bool) -> Vec<Draft> {
        let seen = self.input.observations;
        let ends = self.dead_ends.iter().filter(|end| is(&seen.enclosed[end.enclosed].resource));
        ends.map(|end| Draft {
            message: summary::dead_end_sentence(self, end),
            parties: end.waits.iter().map(|wait| seen.waits[*wait].waiter.clone()).collect(),
            resources: vec![seen.enclosed[end.enclosed].resource.clone()],
            ..Draft::default()
        })
        .collect()
    }

    /// Of a thread that waits for what it has itself: the frames from the wait out to the code that took it.
    fn between(&self, cycle: &Cycle) -> Option<&[Frame]> {
        let [edge] = cycle.edges.as_slice() else { return None };
        let frames = self.names.frames(&edge.waiter);
        let taken = self.input.observations.holds[edge.hold?].frame?;
        frames.get(self.frame_of(edge)..taken)
    }

    fn frame_of(&self, edge: &CycleEdge) -> usize {
        edge.wait.and_then(|wait| self.input.observations.waits[wait].frame).unwrap_or(0)
    }

    /// The edge that waits for a GIL.
    fn gil_waiter<'c>(&self, cycle: &'c Cycle) -> Option<&'c CycleEdge> {
        cycle.edges.iter().find(|edge| edge.resource.kind.topic == Topic::Gil)
    }

    /// Whether the wait is inside a call of the driver: driver frames between it and the Python code that called.
    fn in_driver(&self, edge: &CycleEdge) -> bool {
        let frames = self.names.frames(&edge.waiter).iter().skip(self.frame_of(edge));
        frames.take_while(|frame| frame.kind != FrameKind::Python).any(|frame| self.names.is_driver(frame))
    }

    /// The driver further out than the wait: it called the code that waits.
    fn callback(&self, edge: &CycleEdge) -> Option<Callback> {
        let frames = self.names.frames(&edge.waiter);
        let start = self.frame_of(edge);
        let driver = start + 1 + frames.get(start + 1..)?.iter().position(|frame| self.names.is_driver(frame))?;
        let python = frames[start..driver].iter().rfind(|frame| frame.kind == FrameKind::Python);
        let function = match python {
            Some(frame) => {
                let name = frame.function.as_deref().unwrap_or("?");
                source_line(frame).map_or(format!("its callback {name}"), |at| format!("its callback {name} at {at}"))
            }
            None => "a callback".into(),
        };
        let outer = frames[driver..].iter().take_while(|frame| frame.kind != FrameKind::Python);
        let api = outer.filter(|frame| is_driver_function(frame)).last().and_then(|frame| frame.function.as_deref());
        Some(Callback { function, api: api.unwrap_or("a call that is not named").to_owned() })
    }

    /// The waiter's outermost code is the driver's: a thread that the driver made, running a host function.
    fn on_driver_thread(&self, edge: &CycleEdge) -> bool {
        let frames = self.names.frames(&edge.waiter);
        let Some(driver) = frames.iter().rposition(|frame| self.names.is_driver(frame)) else { return false };
        let outer = &frames[driver..];
        let inner = frames[..driver].iter().rposition(|frame| !self.names.is_driver(frame)).map_or(0, |at| at + 1);
        driver > self.frame_of(edge)
            && outer.iter().all(|frame| frame.kind != FrameKind::Python)
            && !frames[inner..].iter().any(is_driver_function)
            && outer.len() <= OUTERMOST_FRAMES
    }
}
