//! `collective-mismatch`: kernels of different collectives run on the GPUs of a job's ranks.
//!
//! In: the judged sample of several processes, with cores of their GPUs. Out: one draft. Which communicator a kernel is
//! of, its name does not say: ranks that call different operations and ranks that use two groups in two orders look the
//! same.

use std::collections::BTreeMap;

use super::missing_rank::rank;
use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::report::Severity;
use crate::waits::Party;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "collective-mismatch",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "collective_mismatch.py",
        program: include_str!("example.py"),
        command: "torchrun --nproc-per-node 2 collective_mismatch.py",
        needs: Requirement::TwoGpusAndPyTorch,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    let mut ranks: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for position in 0..context.input.image.processes.len() {
        let kernels = context.input.gpu_cores.of(position).iter().flat_map(|core| core.kernels());
        let mut operations: Vec<&str> =
            kernels.filter_map(|(_, kernel)| kernel.collective.as_ref()?.operation.as_deref()).collect();
        operations.dedup();
        // If a rank is in several operations at a time, by communicators of its own, nothing shows which of them belong
        // together.
        if let [operation] = operations.as_slice() {
            ranks.entry(operation).or_default().push(position);
        }
    }
    if ranks.len() < 2 {
        return Vec::new();
    }
    let processes = &context.input.image.processes;
    let told = ranks.iter().map(|(operation, positions)| {
        let names: Vec<String> = positions.iter().take(RANKS).map(|position| rank(&processes[*position])).collect();
        let more = match positions.len().saturating_sub(RANKS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("{}{more} in {operation}", names.join(", "))
    });
    let of_rank =
        |party: &Party| matches!(party, Party::Thread(of, _) if ranks.values().flatten().any(|one| one == of));
    let waits = seen.waits.iter().filter(|wait| wait.resource.kind.is_gpu() && of_rank(&wait.waiter));
    vec![Draft {
        message: format!(
            "By the cores of their GPUs the ranks are in different collectives of NCCL: {}. Each waits until all ranks of its group \
             have come to its own.",
            told.collect::<Vec<_>>().join("; ")
        ),
        parties: waits.map(|wait| wait.waiter.clone()).collect(),
        ..Draft::default()
    }]
}

/// At most this many ranks of one operation are in the message.
const RANKS: usize = 4;
