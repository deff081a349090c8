//! `missing-rank`: some ranks wait for the GPU, inside a collective, and another has not come.
//!
//! In: the judged sample of one process or several, and the answer of NCCL's RAS. Out: drafts of the finding. Which
//! collective it is, RAS alone knows.

use super::rule::{Context, Draft, Example, Requirement, Rule};
use crate::image::ProcessImage;
use crate::image::gpu::has_nccl;
use crate::limits::verdict::RANKS_TOLD;
use crate::nccl_ras::{Communicator, Lag, Rank};
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
    let (mut parties, missing): (Vec<Party>, Vec<String>) = told.unzip();
    let lags = lags(context, &waiting);
    if missing.is_empty() && lags.is_empty() {
        return Vec::new();
    }
    let there: Vec<String> = waiting.iter().map(|position| rank(&processes[*position])).collect();
    let mut message = format!("{} in a collective or behind one.", gathered(&there));
    if missing.is_empty() {
        parties =
            seen.waits.iter().filter(|wait| wait.resource.kind.is_gpu()).map(|wait| wait.waiter.clone()).collect();
    } else {
        message += &format!(" Not there is {}.", missing.join("; "));
    }
    message.extend(lags.iter().map(|lag| format!(" {lag}")));
    vec![Draft { message, parties, ..Draft::default() }]
}

/// The facts of NCCL's RAS about the waiting ranks: which ones have launched more of an operation than others, a
/// sentence each.
fn lags(context: &Context<'_>, waiting: &[usize]) -> Vec<String> {
    let processes = &context.input.image.processes;
    let mut told = Vec::new();
    for heard in context.input.gpu.iter().flat_map(|gpu| &gpu.heard) {
        let own: Vec<i32> = waiting
            .iter()
            .map(|position| &processes[*position])
            .filter(|process| heard.processes.contains(&process.pid))
            .map(|process| process.ns_pid)
            .collect();
        let theirs = |communicator: &&Communicator| own.iter().any(|pid| communicator.rank_of(*pid).is_some());
        for communicator in heard.answer.communicators.iter().filter(theirs) {
            told.extend(communicator.lags().iter().map(|lag| sentence(lag, communicator, &heard.address)));
        }
    }
    told
}

/// "By NCCL's RAS (127.0.0.1:28028), rank 0 (process 562 on 192.0.2.2) has launched AllReduce 2 times in communicator 0x7, rank 1 (..)
/// once, and none of its ranks has launched anything for a while."
fn sentence(lag: &Lag<'_>, communicator: &Communicator, address: &str) -> String {
    let of = |rank: &Rank| match rank.pid {
        Some(pid) => format!("rank {} (process {pid} on {})", rank.rank, rank.host),
        None => format!("rank {}", rank.rank),
    };
    let times = |count: u64| match count {
        0 => "never".to_owned(),
        1 => "once".to_owned(),
        more => format!("{more} times"),
    };
    let ahead: Vec<String> = lag.ahead.iter().map(|rank| of(rank)).collect();
    let behind: Vec<String> =
        lag.behind.iter().map(|(rank, count)| format!("{} {}", of(rank), times(*count))).collect();
    format!(
        "By NCCL's RAS ({address}), {} {} launched {} {} in communicator {}, {}, and none of its ranks has launched anything for a \
         while.",
        some(&ahead),
        if ahead.len() == 1 { "has" } else { "have" },
        lag.operation,
        times(lag.launched),
        communicator.hash,
        some(&behind),
    )
}

/// The first of them, and how many more there are.
fn some(list: &[String]) -> String {
    let told = list.iter().take(RANKS_TOLD).cloned().collect::<Vec<_>>().join(", ");
    match list.len().saturating_sub(RANKS_TOLD) {
        0 => told,
        more => format!("{told} and {more} more"),
    }
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
