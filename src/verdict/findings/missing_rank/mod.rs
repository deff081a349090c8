//! `missing-rank`: some ranks wait for the GPU, inside a collective, and another has not come.
//!
//! In: the judged look at several processes. Out: drafts of the finding. Which collective it is, is not seen from here.

use super::{Context, Draft, Example, Requirement, Rule};
use crate::image::ProcessImage;
use crate::report::Severity;
use crate::waits::Party;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    code: "missing-rank",
    severity: Severity::Warning,
    explanation: include_str!("explain.md"),
    example: Example {
        file: "missing_rank.py",
        program: include_str!("example.py"),
        command: "torchrun --nproc-per-node 2 missing_rank.py",
        needs: Requirement::TwoGpusAndPyTorch,
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.input.observations;
    let processes = &context.input.image.processes;
    let mut ranks: Vec<usize> = (0..processes.len()).filter(|position| has_nccl(&processes[*position])).collect();
    // torchrun has loaded NCCL too, and is no rank.
    let has_rank = |position: &usize| processes[*position].variable("RANK").is_some();
    if ranks.iter().any(has_rank) {
        ranks.retain(has_rank);
    }
    let waits_for_gpu = |position: usize| {
        let of_process = |party: &Party| matches!(party, Party::Thread(of, _) if *of == position);
        seen.waits.iter().any(|wait| of_process(&wait.waiter) && wait.resource.kind.is_gpu())
    };
    let (waiting, elsewhere): (Vec<usize>, Vec<usize>) =
        ranks.into_iter().partition(|position| waits_for_gpu(*position));
    if waiting.is_empty() {
        return Vec::new();
    }
    let told = elsewhere.iter().filter_map(|position| {
        let main = Party::Thread(*position, processes[*position].pid);
        let wait = seen.waits.iter().find(|wait| wait.waiter == main)?;
        let call = context.names.call(&main, wait.frame).phrase();
        let text = format!(
            "{}: its main thread waits for {}{call}",
            rank(&processes[*position]),
            context.names.waited_for(wait)
        );
        Some((main, text))
    });
    let (parties, missing): (Vec<Party>, Vec<String>) = told.unzip();
    if missing.is_empty() {
        return Vec::new();
    }
    let there: Vec<String> = waiting.iter().map(|position| rank(&processes[*position])).collect();
    vec![Draft {
        message: format!("{} in a collective or behind one. Not there is {}.", gathered(&there), missing.join("; ")),
        parties,
        ..Draft::default()
    }]
}

fn has_nccl(process: &ProcessImage) -> bool {
    process.mappings.iter().any(|mapping| mapping.path.as_deref().is_some_and(|path| path.contains("/libnccl.so")))
}

/// "rank 0 waits for the GPU", "rank 0, rank 2 wait for the GPU".
fn gathered(there: &[String]) -> String {
    format!("{} {} for the GPU,", there.join(", "), if there.len() == 1 { "waits" } else { "wait" })
}

/// "rank 1 (process 565)", or the process.
pub(super) fn rank(process: &ProcessImage) -> String {
    match process.variable("RANK") {
        Some(rank) => format!("rank {rank} (process {})", process.pid),
        None => format!("process {}", process.pid),
    }
}
