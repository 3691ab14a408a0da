#!/bin/sh
# fuzz.sh [compare]: sends random commands of all families to each server for SECONDS, and causes faults.
#
# Without a word it fails when a guarantee is broken: `make fuzz`, 300 seconds. With `compare` it sends the same commands
# to the module OLD and to the one built here, and fails at the first difference that a client, a replica or a file sees:
# `make compare-modules`, 60 seconds; tests/server/differential/mod.rs says what is compared. `make test` runs some
# seconds of both; there the module is compared with itself.
#
# `make fuzz` begins with a million grants of a paced semaphore in the engine alone, of which `make test` makes 50,000:
# engine/tests/model/paces.rs.
#
# SEED chooses the random numbers; without it each call takes a new seed. SERVERS="/path/to/redis-server ..." chooses
# the servers; without it they are those of `make test`. Every step is logged before it is sent. A run that fails keeps
# its log under target/fuzz or target/differential, and REPLAY=file sends the same steps again, in the same order and
# with the same pauses. With REDUCE=yes, REPLAY also searches for the lines of the log that are needed for the failure.
set -eu
cd "$(dirname "$0")/.."

if [ "${1:-}" = compare ]; then
    if [ -z "${OLD:-}" ]; then
        echo "dsync: no module to compare with. Name one: make compare-modules OLD=/path/to/libdsync.so" >&2
        exit 1
    fi
    DSYNC_OLD_MODULE=$(realpath -e "$OLD")
    DSYNC_COMPARE_SECONDS=${SECONDS:-60}
    export DSYNC_OLD_MODULE DSYNC_COMPARE_SECONDS
    what="comparing on"
    seconds=$DSYNC_COMPARE_SECONDS
    story=differential::old_and_new_module_show_the_same
else
    DSYNC_FUZZ_SECONDS=${SECONDS:-300}
    export DSYNC_FUZZ_SECONDS
    what="fuzzing"
    seconds=$DSYNC_FUZZ_SECONDS
    story=fuzz::random_commands_and_faults_break_no_guarantee
fi

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
    echo "dsync: no server to send commands to. Name one: SERVERS=/path/to/redis-server" >&2
    exit 1
fi

DSYNC_SEED=${SEED:-$(date +%s)}
export DSYNC_SEED
if [ -n "${REPLAY:-}" ]; then
    DSYNC_REPLAY=$(realpath -e "$REPLAY")
    export DSYNC_REPLAY
    if [ -n "${REDUCE:-}" ]; then
        export DSYNC_REDUCE=1
    fi
    # A log is that of one server, so replay it on one.
    servers=$(echo "$servers" | awk '{ print $1 }')
else
    echo "dsync: SEED=$DSYNC_SEED, $seconds seconds a server"
    if [ "${1:-}" != compare ]; then
        DSYNC_GRANTS=1000000 cargo test -p dsync-engine --test model -- paces
    fi
fi

# shellcheck source=scripts/test-settings.sh
. scripts/test-settings.sh
cargo build --release
for server in $servers; do
    echo
    echo "dsync: $what $("$server" --version | cut -d ' ' -f 1-3) ($server)"
    DSYNC_TEST_SERVER=$server cargo test --test server -- --nocapture --exact "$story"
done
