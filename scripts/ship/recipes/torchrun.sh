#!/bin/sh
# torchrun: each rank under a `lockscope run` of its own, one folder for the reports of all: torchrun.sh RANKS SCRIPT [ARGUMENTS]
# A rank that deadlocks ends within seconds with status 124 and its report; torchrun then ends the others by SIGTERM, and they
# report where they stood. The folder must be one that all hosts share; the files are named by host and process.
set -eu
ranks=$1
shift
exec torchrun --no-python --nproc-per-node "$ranks" \
    lockscope run --timeout 55m --report-dir "${LOCKSCOPE_REPORT_DIR:-$PWD/hangs}" -- "${PYTHON:-python3}" "$@"
