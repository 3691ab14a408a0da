#!/bin/sh
# bench.sh full|growth|peers|instructions|quick: measures the module beside what the server can do without it;
# see benches/README.md.
#
# SERVER names the server, otherwise it is the machine's Redis or Debian's. The lines that compare with DELIFEQ
# need a Valkey 9: NATIVE_SERVER, or one that is built here for `full` and `peers`; without it they are left out. The line
# `servers` runs on OTHER_SERVERS: for `full` that Valkey 9, and a Redis 8 that is built here. MODULE names a module,
# otherwise this builds one. ONLY and OUT are for the program; the environment hands them on, as it does
# what bench-peers.sh, which calls this for `peers`, has installed. bench-instructions.sh calls this for `instructions`.
set -eu
cd "$(dirname "$0")/.."

mode=${1:-full}
sh scripts/need.sh build
if [ -z "${SERVER:-}" ]; then
    SERVER=$(sh scripts/server.sh redis)
    case $mode in
    full | peers)
        [ -n "${NATIVE_SERVER:-}" ] || NATIVE_SERVER=$(sh scripts/build-server.sh valkey 9.1+) ||
            echo "dsync: going on WITHOUT DELIFEQ." >&2
        ;;
    esac
    if [ "$mode" = full ] && [ -z "${OTHER_SERVERS:-}" ]; then
        OTHER_SERVERS=$(sh scripts/build-server.sh redis 8.0+) || echo "dsync: going on WITHOUT Redis 8." >&2
        OTHER_SERVERS="$OTHER_SERVERS ${NATIVE_SERVER:-}"
    fi
fi
if [ -z "${MODULE:-}" ]; then
    cargo build --release
    MODULE=$PWD/target/release/libdsync.so
fi
cargo build --release -p dsync-bench
export SERVER MODULE NATIVE_SERVER="${NATIVE_SERVER:-}" OTHER_SERVERS="${OTHER_SERVERS:-}"

# Every client is an open file, here and in the server, and there are lines with 20,000. Where the hard limit is
# lower, there are fewer clients, and the report says so.
# shellcheck disable=SC3045 # dash and busybox have ulimit -n too
ulimit -n "$(ulimit -H -n)"
exec target/release/dsync-bench "$mode"
