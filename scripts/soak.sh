#!/bin/sh
# soak.sh: random commands and faults, and fleets of helpers under faults, for HOURS (1 unless set), on the servers of
# `make test` and those that test-matrix.sh has built, or on SERVERS="path ...". RECORD=yes adds what was done to
# tests/soak/record.jsonl, and writes its sums into RELIABILITY.md. tests/soak/run.py says the rest.
set -eu
cd "$(dirname "$0")/.."

servers=${SERVERS:-}
if [ -n "$servers" ]; then
    sh scripts/need.sh build hosts peers
else
    sh scripts/need.sh build cli hosts peers
    for name in redis valkey; do
        servers="$servers $(sh scripts/server.sh "$name" || true)"
    done
    for server in target/servers/redis-[7-9]*/redis-server target/servers/valkey-[0-9]*/valkey-server; do
        [ ! -x "$server" ] || servers="$servers $PWD/$server"
    done
fi
if [ -z "$(echo "$servers" | tr -d ' ')" ]; then
    echo "dsync: no server to soak. Name one: SERVERS=/path/to/redis-server" >&2
    exit 1
fi
# shellcheck source=scripts/test-settings.sh
. scripts/test-settings.sh
cargo build --release
cargo test --quiet --no-run --test server
# Once, before two rounds may want it. Each client builds in a folder of its own.
# shellcheck source=clients/conformance/prepare.sh
(unset CARGO_TARGET_DIR && cd clients/conformance && . ./prepare.sh) >&2
record=''
[ -z "${RECORD:-}" ] || record=--record
# shellcheck disable=SC2086 # a word each
exec python3 tests/soak/run.py $record "${HOURS:-1}" $servers
