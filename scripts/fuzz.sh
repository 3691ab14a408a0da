#!/bin/sh
# fuzz.sh: sends random commands of all families to each server for SECONDS (300), causes faults, and fails when a
# guarantee is broken. `make fuzz` calls it; `make test` runs thirty seconds of the same.
#
# SEED chooses the random numbers; without it each call takes a new seed. SERVERS="/path/to/redis-server ..." chooses
# the servers; without it they are those of `make test`. Every step is logged before it is sent. A run that fails keeps
# its log under target/fuzz, and REPLAY=file sends the same steps again, in the same order and with the same pauses.
# With REDUCE=yes, REPLAY also searches for the lines of the log that are needed for the failure.
set -eu
cd "$(dirname "$0")/.."

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
    echo "dsync: no server to fuzz. Name one: make fuzz SERVERS=/path/to/redis-server" >&2
    exit 1
fi

DSYNC_SEED=${SEED:-$(date +%s)}
DSYNC_FUZZ_SECONDS=${SECONDS:-300}
export DSYNC_SEED DSYNC_FUZZ_SECONDS
if [ -n "${REPLAY:-}" ]; then
    export DSYNC_FUZZ_REPLAY="$REPLAY"
    if [ -n "${REDUCE:-}" ]; then
        export DSYNC_FUZZ_REDUCE=1
    fi
    # A log is that of one server, so replay it on one.
    servers=$(echo "$servers" | awk '{ print $1 }')
else
    echo "dsync: SEED=$DSYNC_SEED, $DSYNC_FUZZ_SECONDS seconds a server"
fi

cargo build --release
for server in $servers; do
    echo
    echo "dsync: fuzzing $("$server" --version | cut -d ' ' -f 1-3) ($server)"
    DSYNC_TEST_SERVER=$server cargo test --test server -- --nocapture --exact fuzz::random_commands_and_faults_break_no_guarantee
done
