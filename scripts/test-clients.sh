#!/bin/sh
# test-clients.sh: tests what is built on the module: the client packages in clients/ and what all of them must do
# (clients/conformance), the command-line tool in cli/, the recipes in docs/recipes, and client libraries whose users share
# one connection.
#
# Each part has a test.sh of its own, which gets the path of a server in DSYNC_TEST_SERVER and that of the module in
# DSYNC_TEST_MODULE, starts its own servers on 127.0.0.1, and installs libraries in pinned versions under target/. Every
# part runs on a Redis and on a Valkey, and JOBS parts at a time (2), because most tests wait most of the time. What a part
# prints comes at its end. A part that has not ended on a server after LIMIT seconds (1800) has failed, and is ended with
# all that it started.
#
# SERVERS names other servers, PARTS only some of the parts: for instance
# `make test-clients PARTS=clients/python SERVERS=/usr/bin/redis-server`. Unlike `make test` this needs Python and Node,
# which need.sh installs where they are missing.
set -eu
cd "$(dirname "$0")/.."

# Tests one part on every server; what it prints goes to a file first.
test_part() {
    log=$PWD/target/clients/$(echo "$1" | tr / -).log
    mkdir -p "${log%/*}"
    for server in $SERVERS; do
        echo "dsync: $1 with $("$server" --version | cut -d ' ' -f 1-3)" >"$log"
        status=0
        DSYNC_TEST_SERVER=$server timeout --kill-after=10 "$LIMIT" sh "$1/test.sh" >>"$log" 2>&1 || status=$?
        if [ $status -ne 0 ]; then
            case $status in 124 | 137) echo "dsync: $1 did not end within $LIMIT seconds." >>"$log" ;; esac
            echo "dsync: $1 FAILED with $server" >>"$log"
        fi
        cat "$log"
        [ $status -eq 0 ] || return 1
    done
}

if [ "${1:-}" = part ]; then
    test_part "$2"
    exit
fi

# The longest come first: they mostly wait. Those that build a lot come beside them.
parts=${PARTS:-clients/node clients/python cli clients/rust clients/conformance clients/go docs/recipes tests/clients}
sh scripts/need.sh build peers
if [ -z "${SERVERS:-}" ]; then
    SERVERS="$(sh scripts/server.sh redis) $(sh scripts/server.sh valkey)"
fi
# Several parts need it, which must not fetch it at the same time.
case $parts in *clients/go* | *clients/conformance* | *docs/recipes*) sh scripts/go.sh >/dev/null ;; esac
export SERVERS LIMIT="${LIMIT:-1800}"
CARGO_TARGET_DIR="$PWD/target" cargo build --release
# Each part builds in a folder of its own.
unset CARGO_TARGET_DIR
export DSYNC_TEST_MODULE="$PWD/target/release/libdsync.so"

# shellcheck disable=SC2086 # a list of parts
printf '%s\n' $parts | xargs -P "${JOBS:-2}" -I '{}' sh scripts/test-clients.sh part '{}'
echo 'dsync: all clients passed.'
