#!/bin/sh
# systemd-coredump: the report of a core that it has kept: coredumpctl.sh [PID|NAME] [OPTIONS OF lockscope core]
# Without a word it is the newest core. systemd-coredump keeps what a crash or a watchdog's SIGABRT left, see coredumpctl(1).
set -eu
match=${1-}
[ $# -eq 0 ] || shift
${COREDUMPCTL:-coredumpctl} --quiet dump ${match:+"$match"} | lockscope core - "$@"
