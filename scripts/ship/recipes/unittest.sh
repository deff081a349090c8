#!/bin/sh
# python -m unittest under `lockscope run`: unittest.sh [ARGUMENTS OF unittest]
# A suite that deadlocks ends within seconds with status 124, the report on standard error and in ./hangs. unittest runs all
# tests in one process: those after the one that hangs do not run.
exec lockscope run --timeout 20m --report-dir "${LOCKSCOPE_REPORT_DIR:-hangs}" -- "${PYTHON:-python3}" -m unittest "$@"
