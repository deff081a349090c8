//! Processes of clusters of Dask and Ray on this node, for `lockscope job`.
//!
//! In: the arguments. Out: processes that may be of a cluster, and after a sample those of the chosen one. A process's
//! memory says which cluster it is of, as no launcher sets a variable.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::args::Engine;
use super::{CliError, JobArguments};
use crate::image::live;
use crate::job::{Look, Member};
use crate::launcher::JobEngine;

/// Whether an engine's processes form a cluster, and have no ranks.
pub(super) fn is_one(engine: Engine) -> bool {
    matches!(engine, Engine::Dask | Engine::Ray)
}

/// The processes to sample.
pub(super) fn candidates(arguments: &JobArguments) -> Vec<i32> {
    match arguments.pid.filter(|_| arguments.alone) {
        Some(pid) => vec![pid],
        // If there are several clusters on this node, those that the user did not choose are left alone.
        None => {
            let pids = live::of_clusters(arguments.engine.of_jobs());
            live::together(pids, arguments.pid, arguments.job.as_deref().and_then(address))
        }
    }
}

/// The address of a scheduler, as `tcp://10.0.0.1:8786` or `10.0.0.1:6379`, where it has numbers.
fn address(scheduler: &str) -> Option<SocketAddr> {
    scheduler.rsplit("://").next()?.parse().ok()
}

/// There is none.
pub(super) fn nobody(engine: Engine) -> CliError {
    if engine == Engine::Ray {
        return CliError::new("no process here that lockscope may read takes part in Ray")
            .hint("run it on the node and as the user of a worker, of an actor or of a driver")
            .hint("in Python: `import lockscope.ray; print(lockscope.ray.diagnose())`");
    }
    CliError::new("no process here that lockscope may read belongs to a cluster of Dask")
        .hint("run it on the node and as the user of a worker, of the scheduler or of a client")
        .hint("in Python: `import lockscope.dask; print(lockscope.dask.diagnose(client))`")
}

/// The sample, reduced to the processes of the chosen cluster.
pub(super) fn only_one(arguments: &JobArguments, mut look: Look) -> Result<Look, CliError> {
    let engine = arguments.engine.of_jobs();
    // Its engine, and its scheduler.
    let key = |member: &Member| {
        let cluster = member.cluster.as_ref()?;
        let is_meant = engine.is_none_or(|engine| cluster.engine == engine);
        is_meant.then(|| (cluster.engine, cluster.scheduler.clone().unwrap_or_default()))
    };
    look.members.retain(|member| key(member).is_some());
    let mut clusters: BTreeMap<(JobEngine, String), Vec<i32>> = BTreeMap::new();
    for member in &look.members {
        clusters.entry(key(member).unwrap_or_default()).or_default().push(member.pid);
    }
    if let Some(pid) = arguments.pid {
        clusters.retain(|_, pids| pids.contains(&pid));
        if clusters.is_empty() {
            let of = if arguments.engine == Engine::Ray { "Ray" } else { "Dask" };
            return Err(CliError::new(format!("process {pid} belongs to no cluster of {of}, by what its memory says"))
                .hint("`lockscope attach PID` looks at any process"));
        }
    }
    if let Some(job) = &arguments.job {
        clusters.retain(|(_, scheduler), _| scheduler == job);
    }
    if clusters.len() > 1 {
        let lines: Vec<String> = clusters
            .iter()
            .map(|((engine, scheduler), pids)| {
                format!("`lockscope job --engine {} --job {scheduler}` for {} processes", engine.name(), pids.len())
            })
            .collect();
        return Err(
            CliError::new(format!("{} clusters have processes on this node", clusters.len())).hint(lines.join("; "))
        );
    }
    let Some(wanted) = clusters.into_keys().next() else { return Err(nobody(arguments.engine)) };
    look.members.retain(|member| key(member).as_ref() == Some(&wanted));
    Ok(look.named())
}
