#!/bin/sh
# test.sh: tests the tool, on $DSYNC_TEST_SERVER (a redis-server or valkey-server) with $DSYNC_TEST_MODULE
# (libdsync.so). Without them, on the server that scripts/server.sh finds and the module that `make build` has built.
# Needs only cargo and the server: everything is built under target/cli. Arguments go to the tests, `cli/test.sh
# losses::` runs one file.
set -eu
cd "$(dirname "$0")/.."

export CARGO_TARGET_DIR="$PWD/target/cli"
export DSYNC_TEST_MODULE="${DSYNC_TEST_MODULE:-$PWD/target/release/libdsync.so}"
if [ -z "${DSYNC_TEST_SERVER:-}" ]; then
    DSYNC_TEST_SERVER=$(sh scripts/server.sh redis)
    export DSYNC_TEST_SERVER
fi
if [ ! -f "$DSYNC_TEST_MODULE" ]; then
    echo "cli/test.sh: there is no module at $DSYNC_TEST_MODULE; run \`make build\` first." >&2
    exit 1
fi
# The tests wait for processes most of the time, so more of them than processors run at a time.
cargo test --manifest-path cli/Cargo.toml -- --test-threads 4 "$@"
