#!/bin/bash
#SBATCH --time=01:00:00
# Slurm: each rank under a `lockscope run` of its own, one folder for the reports of all: sbatch --ntasks=8 slurm.sh COMMAND
# A rank that deadlocks ends within seconds with status 124 and its report; --kill-on-bad-exit then ends the others by SIGTERM.
# The folder is one that all nodes share; the files are named by host and process. What is no deadlock ends after 55 minutes
# with a report, before Slurm's limit.
set -euo pipefail
export LOCKSCOPE_REPORT_DIR=${LOCKSCOPE_REPORT_DIR:-$PWD/hangs-$SLURM_JOB_ID}
srun --kill-on-bad-exit=1 lockscope run --timeout 55m -- "$@"
