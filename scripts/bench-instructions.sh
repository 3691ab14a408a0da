#!/bin/sh
# bench-instructions.sh: counts the instructions that the server executes for one operation; see benches/README.md.
#
# Needs a server that knows DEBUG PAUSE-CRON, such as Redis 7. All else is bench.sh's.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need.sh build count
if ! command -v valgrind >/dev/null 2>&1; then
    echo "dsync: there is no valgrind, with which instructions are counted." >&2
    exit 1
fi
PRELOAD=$PWD/target/fixed_random.so
mkdir -p target
cc -shared -fPIC -O1 -o "$PRELOAD" benches/fixed_random.c
export PRELOAD
exec sh scripts/bench.sh instructions
