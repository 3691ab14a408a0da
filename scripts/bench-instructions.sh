#!/bin/sh
# bench-instructions.sh: counts the instructions that the server executes for one operation; see benches/README.md.
#
# A server runs under valgrind's callgrind, from its start to its end, once with n operations and once with 2n. The count
# of an operation is (the second - the first) / n: start, set-up and end cancel out, and the figure holds whatever keys,
# timers and buffers cost later. Switching the count on around the measured part would need valgrind's debugger interface,
# which attaches to the process and is forbidden in many containers, or the server's debug symbols.
#
# Needs a server that knows DEBUG PAUSE-CRON, such as Redis 7. The kernel's instructions are not counted. PAIRS=3 counts
# everything three times and shows medians. On a machine with ten times as much to do as cores, two counts of the same
# differed by up to 7 %, of hand-offs by 20 %. All else is bench.sh's.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need.sh count
if ! command -v valgrind >/dev/null 2>&1; then
    echo "dsync: there is no valgrind, with which instructions are counted." >&2
    exit 1
fi
exec sh scripts/bench.sh instructions
