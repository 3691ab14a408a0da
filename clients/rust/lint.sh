#!/bin/sh
# lint.sh: checks the format, the lints and the documentation of the Rust client, with and without its features. Builds in
# target/clients-rust.
set -eu
cd "$(dirname "$0")"
CARGO_TARGET_DIR=$(cd ../.. && pwd)/target/clients-rust
export CARGO_TARGET_DIR
cargo fmt --check
cargo clippy --locked --no-default-features --examples -- -D warnings
cargo clippy --locked --no-default-features --features cluster,sentinel -- -D warnings
cargo clippy --locked --features tokio-rustls,cluster-async,sentinel -- -D warnings
cargo clippy --locked --features cluster-async,sentinel --all-targets -- -D warnings
RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --features cluster-async,sentinel
