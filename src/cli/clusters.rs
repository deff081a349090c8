//! Processes of Dask's clusters on this node, for `lockscope job`.
//!
//! In: what was asked for. Out: processes that may be of a cluster, and after a look those of the one that is meant: which scheduler
//! a process knows is read from its memory, as no launcher sets a variable.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{CliError, JobArguments};
use crate::image::live;
use crate::job::Look;

/// The processes that are looked at.
pub(super) fn candidates(arguments: &JobArguments) -> Vec<i32> {
    match arguments.pid.filter(|_| arguments.alone) {
        Some(pid) => vec![pid],
        // Of several clusters on this node those are left in peace that are not meant.
        None => live::together(live::of_clusters(), arguments.pid, arguments.job.as_deref().and_then(address)),
    }
}

/// The address of a scheduler, as `tcp://10.0.0.1:8786`, where it has numbers.
fn address(scheduler: &str) -> Option<SocketAddr> {
    let (_, address) = scheduler.split_once("://")?;
    address.parse().ok()
}

/// There is none.
pub(super) fn nobody() -> CliError {
    CliError::new("no process here that lockscope may read belongs to a cluster of Dask")
        .hint("run it on the node and as the user of a worker, of the scheduler or of a client")
        .hint("in Python: `import lockscope.dask; print(lockscope.dask.diagnose(client))`")
}

/// The look at the processes of the cluster that is meant alone.
pub(super) fn only_one(arguments: &JobArguments, mut look: Look) -> Result<Look, CliError> {
    look.members.retain(|member| member.cluster.is_some());
    let scheduler = |member: &crate::job::Member| {
        member.cluster.as_ref().and_then(|cluster| cluster.scheduler.clone()).unwrap_or_default()
    };
    let mut clusters: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for member in &look.members {
        clusters.entry(scheduler(member)).or_default().push(member.pid);
    }
    if let Some(pid) = arguments.pid {
        clusters.retain(|_, pids| pids.contains(&pid));
        if clusters.is_empty() {
            return Err(CliError::new(format!("process {pid} belongs to no cluster of Dask, by what its memory says"))
                .hint("`lockscope attach PID` looks at any process"));
        }
    }
    if let Some(job) = &arguments.job {
        clusters.retain(|scheduler, _| scheduler == job);
    }
    if clusters.len() > 1 {
        let lines: Vec<String> = clusters
            .iter()
            .map(|(scheduler, pids)| {
                format!("`lockscope job --engine dask --job {scheduler}` for {} processes", pids.len())
            })
            .collect();
        return Err(CliError::new(format!("{} clusters of Dask have processes on this node", clusters.len()))
            .hint(lines.join("; ")));
    }
    let Some(wanted) = clusters.into_keys().next() else { return Err(nobody()) };
    look.members.retain(|member| scheduler(member) == wanted);
    Ok(look.named())
}
