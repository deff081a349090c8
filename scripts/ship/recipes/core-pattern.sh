#!/bin/sh
# core_pattern: a report of each crash, without a core on the disk: core-pattern.sh install | core-pattern.sh PID
# `install` (as root) has the kernel give each core to this script. A watchdog that ends a hung service by SIGABRT, as systemd's does,
# thus leaves the report of the hang. The process is still there while its core is read, so that its files are looked up in its own root.
set -eu
folder=${LOCKSCOPE_CRASHES:-/var/lib/lockscope/crashes}
if [ "$1" = install ]; then
    # The kernel takes 127 bytes, and starts the script without a PATH. Two cores at a time, at most.
    echo 2 > /proc/sys/kernel/core_pipe_limit
    echo "|$(readlink -f "$0") %P" > /proc/sys/kernel/core_pattern
    exit
fi
pid=$1
mkdir -p "$folder"
TMPDIR=${TMPDIR:-$folder}
export TMPDIR
exec "${LOCKSCOPE:-/usr/local/bin/lockscope}" core - --quiet --most-input 4G --sysroot "/proc/$pid/root" \
    -o "$folder/$pid.txt" -o "$folder/$pid.json"
