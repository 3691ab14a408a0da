#!/bin/sh
# Tests the Rust client against the server $DSYNC_TEST_SERVER (a path) with the module $DSYNC_TEST_MODULE (a path):
# the tests, the examples of the documentation, and that all examples compile. Arguments go to the tests: `./test.sh aio::`.
# Builds in target/clients-rust, apart from the module, which it does not build.
set -eu
: "${DSYNC_TEST_SERVER:?is the path of redis-server or valkey-server}"
: "${DSYNC_TEST_MODULE:?is the path of the module, libdsync.so}"
cd "$(dirname "$0")"
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$(cd ../.. && pwd)/target/clients-rust}
export CARGO_TARGET_DIR
# Most tests wait for leases, and need little of the processor.
cargo test --locked --features cluster-async,tokio-rustls --lib --test servers --examples -- --test-threads=8 "$@"
cargo test --locked --features cluster-async,tokio-rustls --doc
