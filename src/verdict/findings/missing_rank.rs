//! `missing-rank`: some ranks wait for the GPU, inside a collective, and another has not come.
//!
//! In: the judged look at several processes. Out: drafts of the finding. Which collective it is, is not seen from here.

use super::{Context, Draft, Example, Explanation, Fix, Requirement, Rule, Toolkit};
use crate::image::ProcessImage;
use crate::report::Severity;
use crate::waits::Party;

/// The finding's texts and its rule.
pub(super) const RULE: Rule = Rule {
    explanation: Explanation {
        code: "missing-rank",
        title: "a rank does not take part while the others wait",
        severity: Severity::Warning,
        what: "The job has several processes (ranks). Some wait for the GPU, in a collective or behind one, and at least one other is not there: it waits for something on the CPU. What holds that one up is the cause; the others only wait for it.",
        cause: "The kernel of a collective (all-reduce, broadcast, barrier) ends when all ranks have launched theirs. A rank does not come when it takes another branch, has fewer batches than the others, hangs in a data loader, waits for a lock or for the GIL, still writes a checkpoint, or has died. The ranks that came spin on the GPU, which looks like full use.",
        example: Example {
            file: "missing_rank.py",
            program: include_str!("examples/missing_rank.py"),
            command: "torchrun --nproc-per-node 2 missing_rank.py",
            needs: Requirement::TwoGpusAndPyTorch,
        },
        help: &[
            "look at what the rank that did not come waits for",
            "a branch that only some ranks take must not contain a collective",
        ],
        fixes: &[
            Fix {
                with: Toolkit::Python,
                text: "a deadlock of locks or of the GIL on one rank stops them all: look at that rank with `lockscope attach PID`, or at all of a node with `lockscope attach --tree PID` of the launcher.",
            },
            Fix {
                with: Toolkit::CuPy,
                text: "with `cupyx.distributed` each rank must make the same calls in the same order: no collective in a branch that depends on the rank or on local data.",
            },
            Fix {
                with: Toolkit::PyTorch,
                text: "no collective in `if rank == 0:`; that includes DistributedDataParallel's backward, `SyncBatchNorm`, `torch.distributed.barrier`, and saving with FSDP. For an unequal number of batches use the `torch.distributed.algorithms.join.Join` context or drop the rest (`drop_last=True`). TORCH_NCCL_TRACE_BUFFER_SIZE=2000 with TORCH_NCCL_DUMP_ON_TIMEOUT=1 writes which collective each rank came to, and `TORCH_DISTRIBUTED_DEBUG=DETAIL` checks that they match.",
            },
            Fix {
                with: Toolkit::C,
                text: "let every rank make the same NCCL calls in the same order for each communicator. ncclCommGetAsyncError tells that a peer failed, and ncclCommAbort lets the kernel end. ncclras (NCCL 2.24) shows which ranks lag.",
            },
        ],
        references: &[
            "pytorch/pytorch#109074",
            "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html",
        ],
    },
    rule,
};

fn rule(context: &Context<'_>) -> Vec<Draft> {
    let seen = context.look.observations;
    let processes = &context.look.image.processes;
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
fn rank(process: &ProcessImage) -> String {
    match process.variable("RANK") {
        Some(rank) => format!("rank {rank} (process {})", process.pid),
        None => format!("process {}", process.pid),
    }
}
