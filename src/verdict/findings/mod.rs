//! Findings: recognised situations, each with its rule, its help, its explanation and public reports of the same.
//!
//! In: the judged sample. Out: findings of the report, and the texts of `lockscope explain`. Each finding has a folder with its
//! text (`explain.md`), a program that hangs so (`example.*`) and its rule (`mod.rs`, or a row of [`simple`]). The order of the
//! list is their rank. The first rule that recognises a cycle explains it alone.

mod collective_mismatch;
mod cooperative_launch_starved;
mod cuda_after_fork;
mod cuda_call_at_exit;
mod cuda_call_in_host_function;
mod driver_library_mismatch;
mod event_loop_blocked;
mod executor_self_wait;
pub(crate) mod explanation;
mod failed_launch;
mod finalizing_interpreter;
mod gil_held_in_blocking_cuda_call;
mod gil_vs_driver_callback;
mod gil_vs_native_lock;
mod gpu_error_behind_hang;
mod kernel_never_ends;
mod kernels;
mod launch_blocking_with_nccl;
mod lazy_loading_vs_running_kernel;
mod lock_order_cycle;
mod lock_taken_again_in_finaliser;
mod lock_taken_again_in_signal_handler;
mod missing_rank;
mod nobody_left_to_wake;
mod pipe_cycle;
mod pipe_without_writer;
mod pool_work_cycle;
mod reader_behind_writer;
mod rule;
mod simple;
mod spinning_on_memory;
mod stream_waits_value;
#[cfg(test)]
mod tests;
mod toolkits;
mod traced_or_stopped;
mod waiting_for_gpu;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::report::Finding;
use crate::waits::model::KnownWakers;
use crate::waits::{Certainty, Hold, Party, Proof, ResourceKey, Wait};
pub(crate) use explanation::{Explanation, Fix};
use rule::{Context, Draft, Rule};

const REGISTRY: &[Rule] = &[
    cuda_call_in_host_function::RULE,
    simple::GIL_VS_HOST_FUNCTION,
    gil_vs_driver_callback::RULE,
    simple::STOP_THE_WORLD_BLOCKED,
    simple::LOADER_LOCK_CYCLE,
    simple::STATIC_INIT_CYCLE,
    pipe_cycle::RULE,
    simple::FILE_LOCK_CYCLE,
    simple::IMPORT_CYCLE,
    executor_self_wait::RULE,
    simple::JOIN_CYCLE,
    lock_taken_again_in_signal_handler::RULE,
    lock_taken_again_in_finaliser::RULE,
    simple::SELF_DEADLOCK,
    gil_vs_native_lock::RULE,
    pool_work_cycle::RULE,
    lock_order_cycle::RULE,
    cuda_after_fork::RULE,
    simple::FORK_ORPHANED_LOCK,
    finalizing_interpreter::RULE,
    simple::OWNER_EXITED,
    simple::DEAD_PROCESS_HOLDS_LOCK,
    pipe_without_writer::RULE,
    simple::POOL_WORKER_DIED,
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
    simple::RANK_CYCLE,
    driver_library_mismatch::RULE,
    traced_or_stopped::RULE,
    reader_behind_writer::RULE,
    stream_waits_value::RULE,
    cooperative_launch_starved::RULE,
    spinning_on_memory::RULE,
    kernel_never_ends::RULE,
    waiting_for_gpu::RULE,
    simple::LOCK_ORDER_INVERSION,
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
    let (certainty, proof) = (certainty(context, &draft), proof(context, &draft));
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
        proof,
        threads,
        resources,
        ruled_out: ruled_out(context, &draft.resources),
        help,
        references,
    }
}

/// Everything that could have ended a wait without end for one of these, and why it cannot.
fn ruled_out(context: &Context<'_>, resources: &[ResourceKey]) -> Vec<String> {
    let ends = context.dead_ends.iter().map(|end| &context.input.observations.known_wakers[end.known_wakers]);
    ends.filter(|one| resources.contains(&one.resource)).flat_map(|one| one.ruled_out.iter().cloned()).collect()
}

/// The advice: the part for everybody, then those of the toolkits that the parties use.
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
    let (waits, holds, ends) = premises(context, draft);
    let waits = waits.into_iter().map(|wait| wait.certainty);
    let holds = holds.into_iter().map(|hold| hold.strength.certainty());
    waits.chain(holds).chain(ends.into_iter().map(|end| end.certainty)).min().unwrap_or(Certainty::Inferred)
}

/// The proof of a finding, from the same premises as its certainty. A wait that nobody can end is always proven by absence.
fn proof(context: &Context<'_>, draft: &Draft) -> Proof {
    if let Some(cycle) = draft.cycle.and_then(|cycle| context.cycles.get(cycle)) {
        let edges = cycle.edges.iter().map(|edge| edge.proof(context.input.observations));
        return edges.min().unwrap_or(Proof::Absence);
    }
    let (waits, holds, ends) = premises(context, draft);
    let waits = waits.into_iter().map(Wait::proof);
    let holds = holds.into_iter().map(Hold::proof);
    waits.chain(holds).chain(ends.into_iter().map(|_| Proof::Absence)).min().unwrap_or(Proof::Absence)
}

/// The waits and holds between the parties and resources of a finding without a cycle, and what is known of who could end such a wait.
fn premises<'c>(context: &'c Context<'_>, draft: &Draft) -> (Vec<&'c Wait>, Vec<&'c Hold>, Vec<&'c KnownWakers>) {
    let seen = context.input.observations;
    let parties: BTreeSet<&Party> = draft.parties.iter().collect();
    let resources: BTreeSet<&ResourceKey> = draft.resources.iter().collect();
    let ends = context.dead_ends.iter().map(|end| &seen.known_wakers[end.known_wakers]);
    let takes_part = |party: &Party, resource: &ResourceKey| parties.contains(party) && resources.contains(resource);
    let waits = seen.waits.iter().filter(|wait| takes_part(&wait.waiter, &wait.resource));
    let of_holds = |hold: &&Hold| {
        takes_part(&hold.holder, &hold.resource) || hold.gone.is_some() && resources.contains(&hold.resource)
    };
    let holds = seen.holds.iter().filter(of_holds);
    (waits.collect(), holds.collect(), ends.filter(|one| resources.contains(&one.resource)).collect())
}
