#!/bin/sh
# compare-modules.sh: sends the same random commands to the module OLD and to the one that is built here, each in servers
# of the same program, for SECONDS (60) a server, and fails at the first difference that a client, a replica or a file
# sees, tokens, fences, ids of clients and times apart. `make compare-modules OLD=file` calls it; `make test` compares
# the module with itself for two seconds.
#
# SEED chooses the random numbers; without it each call takes a new seed. SERVERS="/path/to/redis-server ..." chooses
# the servers; without it they are those of `make test`. A run that fails prints the seed, the last steps and both sides
# of the first difference, and keeps its log under target/differential.
set -eu
cd "$(dirname "$0")/.."

if [ -z "${OLD:-}" ]; then
    echo "dsync: no module to compare with. Name one: make compare-modules OLD=/path/to/libdsync.so" >&2
    exit 1
fi
DSYNC_OLD_MODULE=$(realpath "$OLD")

servers=${SERVERS:-}
if [ -n "$servers" ]; then
    sh scripts/need.sh build
else
    sh scripts/need.sh build cli
    for name in redis valkey; do
        servers="$servers $(sh scripts/server.sh "$name" || true)"
    done
fi
if [ -z "$(echo "$servers" | tr -d ' ')" ]; then
    echo "dsync: no server. Name one: make compare-modules OLD=$OLD SERVERS=/path/to/redis-server" >&2
    exit 1
fi

DSYNC_SEED=${SEED:-$(date +%s)}
DSYNC_COMPARE_SECONDS=${SECONDS:-60}
export DSYNC_OLD_MODULE DSYNC_SEED DSYNC_COMPARE_SECONDS
echo "dsync: SEED=$DSYNC_SEED, $DSYNC_COMPARE_SECONDS seconds a server"

cargo build --release
for server in $servers; do
    echo
    echo "dsync: comparing on $("$server" --version | cut -d ' ' -f 1-3) ($server)"
    DSYNC_TEST_SERVER=$server cargo test --test server -- --nocapture --exact differential::old_and_new_module_show_the_same
done
