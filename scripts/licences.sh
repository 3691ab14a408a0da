#!/bin/sh
# licences.sh: fails if a dependency has a licence or comes from a place that deny.toml does not allow.
#
# Builds cargo-deny into target/tools if it is not there, which takes some minutes and happens once.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need.sh build
PATH=$PATH:$PWD/target/tools/bin
if ! command -v cargo-deny >/dev/null 2>&1; then
    echo 'dsync: building cargo-deny into target/tools'
    cargo install cargo-deny --locked --quiet --root target/tools
fi
cargo deny --workspace check licenses bans sources
