#!/bin/sh
# cargo-tool.sh NAME: prints the folder in which cargo-NAME is. Where the machine has none, builds it into target/tools, which
# takes some minutes and happens once.
set -eu
name=$1
tools=$(cd "$(dirname "$0")/.." && pwd)/target/tools

PATH=$PATH:$tools/bin
if ! command -v "cargo-$name" >/dev/null; then
    echo "dsync: building cargo-$name into target/tools ..." >&2
    (unset CARGO_TARGET_DIR && cargo install --quiet --locked --root "$tools" "cargo-$name") >&2
fi
dirname "$(command -v "cargo-$name")"
