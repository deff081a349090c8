#!/bin/sh
# Docker: a command in a container under `lockscope run`: docker.sh IMAGE COMMAND [ARGUMENTS]
# On a hang the container ends with status 124, the report is in its log and in ./hangs. lockscope must be in the container,
# here by a mount (the static build runs in each image), and needs no capability there: it looks at its own descendants.
#
# Reports can be read by their owner only, who is the container's user: with --user "$(id -u)" that is you.
#
# A container that runs already is looked at from beside it. That needs a capability where the users differ or Yama restricts
# ptrace:
#   docker run --rm --pid container:NAME --cap-add SYS_PTRACE -v "$(command -v lockscope):/lockscope:ro" IMAGE /lockscope attach 1
set -eu
image=$1
shift
folder=${LOCKSCOPE_REPORT_DIR:-$PWD/hangs}
mkdir -p "$folder"
exec docker run --rm \
    -v "$(command -v lockscope):/usr/local/bin/lockscope:ro" \
    -v "$folder:/hangs" -e LOCKSCOPE_REPORT_DIR=/hangs \
    "$image" lockscope run --timeout 20m -- "$@"
