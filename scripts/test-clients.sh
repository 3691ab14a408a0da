#!/bin/sh
# test-clients.sh: tests what is built on the module: the client packages in clients/, the command-line tool in cli/, the
# recipes in docs/recipes, and client libraries whose users share one connection.
#
# Each part has a test.sh of its own, which gets the path of a server in DSYNC_TEST_SERVER and that of the module in
# DSYNC_TEST_MODULE, starts its own servers on 127.0.0.1, and installs libraries in pinned versions under target/. Every
# part runs on a Redis and on a Valkey. SERVERS names other servers, PARTS only some of the parts: for instance
# `make test-clients PARTS=clients/python SERVERS=/usr/bin/redis-server`. Unlike `make test` this needs Python and Node,
# which need.sh installs where they are missing.
set -eu
cd "$(dirname "$0")/.."

parts=${PARTS:-tests/clients clients/python clients/node clients/rust cli docs/recipes}
sh scripts/need.sh build peers
if [ -z "${SERVERS:-}" ]; then
    SERVERS="$(sh scripts/server.sh redis) $(sh scripts/server.sh valkey)"
fi
CARGO_TARGET_DIR="$PWD/target" cargo build --release
# Each part builds in a folder of its own.
unset CARGO_TARGET_DIR
export DSYNC_TEST_MODULE="$PWD/target/release/libdsync.so"

for server in $SERVERS; do
    for part in $parts; do
        echo "dsync: $part with $("$server" --version | cut -d ' ' -f 1-3)"
        DSYNC_TEST_SERVER=$server sh "$part/test.sh"
    done
done
echo 'dsync: all clients passed.'
