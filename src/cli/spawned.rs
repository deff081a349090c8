//! Ranks of PyTorch that no launcher's variable names, for `lockscope job`: those of `torch.multiprocessing.spawn` and of programs that start
//! processes by themselves.
//!
//! In: the arguments. Out: processes that may be such ranks, and after a sample those that are. A process's memory says
//! which rank it is.

use std::collections::BTreeMap;

use super::args::Engine;
use super::{CliError, JobArguments};
use crate::image::live;
use crate::job::Look;
use crate::report::Report;

/// The processes to sample; none if the arguments exclude them.
pub(super) fn candidates(arguments: &JobArguments) -> Vec<i32> {
    // A job without a launcher has no name.
    if !matches!(arguments.engine, Engine::Auto | Engine::Torchrun) || arguments.job.is_some() {
        return Vec::new();
    }
    let all = live::with_pytorch();
    match arguments.pid {
        Some(pid) if !all.contains(&pid) => Vec::new(),
        Some(pid) if arguments.alone => vec![pid],
        // If there are several jobs on this node, those that the user did not choose are left alone.
        pid => live::together(all, pid, None),
    }
}

/// The sample, reduced to the ranks of the chosen job: those that one process has started.
pub(super) fn only_one(arguments: &JobArguments, mut look: Look, report: &Report) -> Result<Look, CliError> {
    look.members.retain(|member| member.identity.rank.is_some());
    let parent = |pid: i32| report.processes.iter().find(|process| process.pid == pid).and_then(|one| one.parent);
    let mut jobs: BTreeMap<Option<i32>, Vec<i32>> = BTreeMap::new();
    for member in &look.members {
        jobs.entry(parent(member.pid)).or_default().push(member.pid);
    }
    if let Some(pid) = arguments.pid {
        jobs.retain(|_, pids| pids.contains(&pid));
        if jobs.is_empty() {
            return Err(CliError::new(format!(
                "process {pid} is no rank of a job, by the variables that it was started with, nor by PyTorch's objects in it"
            ))
            .hint("`lockscope attach PID` looks at any process"));
        }
    }
    if jobs.len() > 1 {
        let line = |pids: &Vec<i32>| {
            format!("`lockscope job --pid {}` for one with {} ranks", pids.first().copied().unwrap_or(0), pids.len())
        };
        return Err(CliError::new(format!("{} jobs of PyTorch have ranks on this node", jobs.len()))
            .hint(jobs.values().map(line).collect::<Vec<_>>().join("; ")));
    }
    let Some(pids) = jobs.into_values().next() else {
        return Err(CliError::new("no process here that lockscope may read is a rank of a job")
            .hint("ranks are known by what their launcher has set in their environment, and by the default group of `torch.distributed`")
            .hint("run it on the node and as the user of the job, or look at one process with `lockscope attach PID`"));
    };
    look.members.retain(|member| pids.contains(&member.pid));
    Ok(look.named())
}
