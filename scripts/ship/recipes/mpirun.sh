#!/bin/sh
# mpirun: each rank under a `lockscope run` of its own, one folder for the reports of all: mpirun.sh RANKS COMMAND [ARGUMENTS]
# A rank that deadlocks ends within seconds with status 124 and its report; mpirun then ends the others. MPICH kills them at once,
# Open MPI sends SIGTERM, at which they report where they stood. The folder must be one that all hosts share; the files are named
# by host and process. MPICH ends ranks only of programs that have called MPI_Init.
set -eu
ranks=$1
shift
exec mpirun -n "$ranks" \
    lockscope run --timeout 55m --report-dir "${LOCKSCOPE_REPORT_DIR:-$PWD/hangs}" -- "$@"
