#!/bin/sh
# lint.sh: checks the format, the lints and the documentation of the Rust client, with each of its features. Builds in
# target/clients-rust.
set -eu
cd "$(dirname "$0")"
CARGO_TARGET_DIR=$(cd ../.. && pwd)/target/clients-rust
export CARGO_TARGET_DIR
cargo fmt --check
for features in '' cluster,sentinel; do
    cargo clippy --locked --no-default-features --features "$features" --examples -- -D warnings
done
for features in cluster tokio-rustls,cluster-async,sentinel; do
    cargo clippy --locked --features "$features" -- -D warnings
done
cargo clippy --locked --features cluster-async,sentinel --all-targets -- -D warnings
RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --features cluster-async,sentinel
