#!/bin/sh
# lint.sh: checks the format, the lints and the documentation of the Rust client, with and without its features. Builds in
# target/clients-rust.
set -eu
cd "$(dirname "$0")"
CARGO_TARGET_DIR=$(cd ../.. && pwd)/target/clients-rust
export CARGO_TARGET_DIR
cargo fmt --check
# What a user may build, by what each adds: one that is not checked here may warn in a program that depends on it.
for features in '' cluster tls-rustls cluster,tls-rustls tokio tokio,cluster cluster-async tokio-rustls; do
    cargo clippy --locked --no-default-features --features "$features" -- -D warnings
done
cargo clippy --locked --features cluster-async,tokio-rustls --all-targets -- -D warnings
RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --features cluster-async
