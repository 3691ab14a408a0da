#!/bin/sh
# lint.sh: checks the format and the lints of the tool. Builds in target/cli.
set -eu
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="$PWD/target/cli"
cargo fmt --manifest-path cli/Cargo.toml --check
cargo clippy --locked --manifest-path cli/Cargo.toml --all-targets -- -D warnings
