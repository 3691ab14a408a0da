#!/bin/sh
# licences.sh: fails if a dependency has a licence or comes from a place that deny.toml does not allow.
# cargo-tool.sh builds cargo-deny if it is not there.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need.sh build
PATH=$PATH:$(sh scripts/cargo-tool.sh deny)
cargo deny --workspace check licenses bans sources
