//! The environment variables that configure CUDA and NCCL, or that show a process's rank and job.
//!
//! In: the strings that the program was started with. Out: those few variables, so that nothing else of the environment
//! comes into a report or a snapshot. Later changes by the program are not among them.

// Its input is foreign.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

/// How the names begin.
const NAMES: [&str; 4] = ["CUDA_", "NCCL_", "TORCH_NCCL_", "PYTORCH_CUDA_"];
/// Whole names, as launchers of jobs set them: torchrun (torch.distributed.elastic, 2.x), Open MPI 4 and 5 (PRRTE), MPICH's Hydra,
/// PMIx, Slurm 22, Kubernetes (indexed jobs), Dask, Ray. [`launcher`](crate::launcher) says what they mean.
const OF_JOBS: [&str; 30] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "PMI_JOBID",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_LOCALID",
    "SLURM_RESTART_COUNT",
    "JOB_COMPLETION_INDEX",
    "DASK_SCHEDULER_ADDRESS",
    "RAY_JOB_ID",
    "RAY_RAYLET_PID",
];

/// The variables, from strings with a 0 byte behind each.
pub(crate) fn relevant(strings: &[u8]) -> Vec<(String, String)> {
    let variable = |bytes: &[u8]| {
        let (name, value) = std::str::from_utf8(bytes).ok()?.split_once('=')?;
        let wanted = OF_JOBS.contains(&name) || NAMES.iter().any(|prefix| name.starts_with(prefix));
        wanted.then(|| (name.to_owned(), value.to_owned()))
    };
    strings.split(|byte| *byte == 0).filter_map(variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_cuda_and_jobs_is_kept() {
        let strings =
            b"HOME=/root\0RANKING=1\0CUDA_LAUNCH_BLOCKING=1\0SECRET_CUDA_=x\0NCCL_DEBUG=INFO\0SLURM_JOB_ID=7\0SLURM_JWT=x\0CUDA_VISIBLE_DEVICES=";
        let expected = [
            ("CUDA_LAUNCH_BLOCKING", "1"),
            ("NCCL_DEBUG", "INFO"),
            ("SLURM_JOB_ID", "7"),
            ("CUDA_VISIBLE_DEVICES", ""),
        ];
        assert_eq!(relevant(strings), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
