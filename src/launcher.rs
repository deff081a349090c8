//! A process's job and its rank there, from the variables that launchers set.
//!
//! In: the variables of [`environment`](crate::image::environment). Out: a [`Membership`]. If launchers are nested, the
//! innermost counts: under `srun torchrun`, SLURM_PROCID is the node's and RANK the process's. A missing or malformed
//! number is not guessed. This module reads nothing and samples no process.

// All of its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::job::LARGEST_RANK;

/// The launcher that started the ranks of a job, or the library whose cluster it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum JobEngine {
    /// torchrun, or its variables set by hand.
    Torchrun,
    /// PyTorch's objects alone say that it is a job.
    Torch,
    /// `mpirun` or `mpiexec`.
    Mpi,
    /// `srun`.
    Slurm,
    /// An indexed job of Kubernetes.
    Kubernetes,
    /// A cluster of Dask.
    Dask,
    /// A cluster of Ray.
    Ray,
    /// One that this version does not know, from a later one's file.
    #[default]
    #[serde(other)]
    Other,
}

impl JobEngine {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            JobEngine::Torchrun => "torchrun",
            JobEngine::Torch => "torch",
            JobEngine::Mpi => "mpi",
            JobEngine::Slurm => "slurm",
            JobEngine::Kubernetes => "kubernetes",
            JobEngine::Dask => "dask",
            JobEngine::Ray => "ray",
            JobEngine::Other => "other",
        }
    }
}

/// A job, as its engine names it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Job {
    /// Its engine.
    pub engine: JobEngine,
    /// The engine's name for it; null where the engine sets none.
    pub id: Option<String>,
    /// The step of it, where the engine has steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// A process's place in a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) job: Job,
    pub(crate) rank: u32,
    /// How many ranks there are.
    pub(crate) size: Option<u32>,
    /// How many times the job was started again before.
    pub(crate) attempt: Option<u32>,
    /// Its number among the ranks of its node.
    pub(crate) local_rank: Option<u32>,
    /// How many ranks its node has.
    pub(crate) local_size: Option<u32>,
}

/// The variables of one launcher.
#[derive(Debug)]
struct Row {
    engine: JobEngine,
    /// It has started the process if all of these are there.
    marks: &'static [&'static str],
    job: &'static [&'static str],
    step: &'static str,
    rank: &'static str,
    size: &'static [&'static str],
    attempt: &'static str,
    local: (&'static str, &'static str),
}

/// Launchers, those first that run inside of others.
const LAUNCHERS: &[Row] = &[
    // torch/distributed/elastic/agent/server/local_elastic_agent.py, _start_workers.
    Row {
        engine: JobEngine::Torchrun,
        marks: &["TORCHELASTIC_RUN_ID"],
        job: &["TORCHELASTIC_RUN_ID"],
        step: "",
        rank: "RANK",
        size: &["WORLD_SIZE"],
        attempt: "TORCHELASTIC_RESTART_COUNT",
        local: ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    },
    // Open MPI 4 (ORTE) and 5 (PRRTE, mca/schizo/ompi).
    Row {
        engine: JobEngine::Mpi,
        marks: &["OMPI_COMM_WORLD_RANK"],
        job: &["PMIX_NAMESPACE"],
        step: "",
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        attempt: "",
        local: ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    },
    // MPICH's Hydra (src/pm/hydra, proxy), Intel MPI.
    Row {
        engine: JobEngine::Mpi,
        marks: &["PMI_RANK", "MPI_LOCALRANKID"],
        job: &["PMI_JOBID"],
        step: "",
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        attempt: "",
        local: ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    },
    // Set by hand, as torch.distributed's env:// method reads them.
    Row {
        engine: JobEngine::Torchrun,
        marks: &["RANK", "WORLD_SIZE", "MASTER_ADDR"],
        job: &[],
        step: "",
        rank: "RANK",
        size: &["WORLD_SIZE"],
        attempt: "",
        local: ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    },
    // The batch script's processes have SLURM_PROCID=0 as well, and no numbered step.
    Row {
        engine: JobEngine::Slurm,
        marks: &["SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID"],
        job: &["SLURM_JOB_ID"],
        step: "SLURM_STEP_ID",
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        attempt: "SLURM_RESTART_COUNT",
        local: ("SLURM_LOCALID", ""),
    },
    // PMIx without a launcher of its own, as under `srun --mpi=pmix`.
    Row {
        engine: JobEngine::Mpi,
        marks: &["PMIX_RANK", "PMIX_NAMESPACE"],
        job: &["PMIX_NAMESPACE"],
        step: "",
        rank: "PMIX_RANK",
        size: &[],
        attempt: "",
        local: ("", ""),
    },
    Row {
        engine: JobEngine::Kubernetes,
        marks: &["JOB_COMPLETION_INDEX"],
        job: &[],
        step: "",
        rank: "JOB_COMPLETION_INDEX",
        size: &[],
        attempt: "",
        local: ("", ""),
    },
];

/// The place of a process with these variables in its job; `None` if no launcher says one.
pub(crate) fn membership(variables: &[(String, String)]) -> Option<Membership> {
    let value = |name: &str| {
        variables
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    };
    let number = |name: &str| value(name)?.parse::<u32>().ok().filter(|number| *number <= LARGEST_RANK);
    LAUNCHERS.iter().find_map(|row| {
        if !row.marks.iter().all(|mark| value(mark).is_some()) {
            return None;
        }
        // A batch script is no step, and stands for no rank.
        if !row.step.is_empty() && number(row.step).is_none() {
            return None;
        }
        let rank = number(row.rank)?;
        let text = |name: &str| value(name).map(str::to_owned);
        let size = row.size.iter().find_map(|name| number(name)).filter(|size| rank < *size);
        Some(Membership {
            job: Job {
                engine: row.engine,
                // torchrun's value if nobody gave the job a name (--rdzv-id).
                id: row.job.iter().find_map(|name| text(name)).filter(|id| id != "none"),
                step: text(row.step),
            },
            rank,
            size,
            attempt: number(row.attempt),
            local_rank: number(row.local.0),
            local_size: number(row.local.1),
        })
    })
}

/// Whether two processes have the same rank of the same job, by their variables.
pub(crate) fn is_same_rank(one: &[(String, String)], other: &[(String, String)]) -> bool {
    match (membership(one), membership(other)) {
        (Some(one), Some(other)) => one == other,
        _ => false,
    }
}

/// Programs that start another one and only wait for it: a rank behind one of these is not inherited.
pub(crate) fn is_wrapper(name: &str) -> bool {
    const NAMES: [&str; 21] = [
        "sh",
        "bash",
        "dash",
        "ash",
        "zsh",
        "ksh",
        "fish",
        "busybox",
        "env",
        "timeout",
        "numactl",
        "nice",
        "taskset",
        "time",
        "setpriv",
        "setsid",
        "su",
        "sudo",
        "strace",
        "tini",
        "dumb-init",
    ];
    // The sampling process, below a `lockscope run`, has a name of its own.
    name.starts_with("lockscope") || NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<Membership> {
        let pair = |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        membership(&text.split_whitespace().filter_map(pair).collect::<Vec<_>>())
    }

    fn rank(text: &str) -> Option<(JobEngine, Option<String>, u32, Option<u32>)> {
        of(text).map(|found| (found.job.engine, found.job.id, found.rank, found.size))
    }

    #[test]
    fn what_a_later_version_writes_can_be_read() {
        let read = |text: &str| serde_json::from_str::<JobEngine>(text).ok();
        assert_eq!(["\"mpi\"", "\"newer\"", "7"].map(read), [Some(JobEngine::Mpi), Some(JobEngine::Other), None]);
        let every = [JobEngine::Torchrun, JobEngine::Kubernetes, JobEngine::Ray, JobEngine::Other];
        every.iter().for_each(|one| assert_eq!(serde_json::to_value(one).ok(), Some(one.name().into())));
    }

    #[test]
    fn the_inner_launcher_counts() {
        let slurm = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 ";
        assert_eq!(rank(slurm), Some((JobEngine::Slurm, Some("7".into()), 1, Some(2))));
        let torch = "TORCHELASTIC_RUN_ID=x RANK=5 WORLD_SIZE=8 TORCHELASTIC_RESTART_COUNT=3";
        assert_eq!(rank(&format!("{slurm}{torch}")), Some((JobEngine::Torchrun, Some("x".into()), 5, Some(8))));
        assert_eq!(of(torch).and_then(|found| found.attempt), Some(3));
        let open_mpi = "PMIX_RANK=2 PMIX_NAMESPACE=n@1 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=3";
        assert_eq!(rank(&format!("{slurm}{open_mpi}")), Some((JobEngine::Mpi, Some("n@1".into()), 2, Some(3))));
        let mpich = of("PMI_RANK=1 PMI_SIZE=3 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=3").expect("a rank");
        assert_eq!((mpich.job.id, mpich.rank, mpich.local_size), (None, 1, Some(3)));
    }

    #[test]
    fn what_says_no_rank_is_none() {
        for text in [
            "",
            "RANK=1",
            "SLURM_JOB_ID=7 SLURM_PROCID=0",
            "SLURM_JOB_ID=7 SLURM_STEP_ID=batch SLURM_PROCID=0",
            "OMPI_COMM_WORLD_RANK=x",
            "OMPI_COMM_WORLD_RANK=-1",
            "OMPI_COMM_WORLD_RANK=99999999999",
            "JOB_COMPLETION_INDEX=",
        ] {
            assert_eq!(rank(text), None, "{text}");
        }
        let beyond = rank("OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=3");
        assert_eq!(beyond, Some((JobEngine::Mpi, None, 5, None)), "a size that the rank contradicts is none");
    }

    #[test]
    fn a_rank_is_the_same_only_in_the_same_attempt() {
        let at = |attempt: &str| {
            let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            vec![
                set("TORCHELASTIC_RUN_ID", "x"),
                set("RANK", "0"),
                set("WORLD_SIZE", "2"),
                set("TORCHELASTIC_RESTART_COUNT", attempt),
            ]
        };
        assert!(is_same_rank(&at("0"), &at("0")));
        assert!(!is_same_rank(&at("0"), &at("1")) && !is_same_rank(&[], &[]));
        assert!(is_wrapper("bash") && is_wrapper("lockscope-look") && !is_wrapper("python3"));
    }
}
