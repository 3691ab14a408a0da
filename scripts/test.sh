#!/bin/sh
# test.sh: runs the engine's tests once, then the module's tests on a Redis and a Valkey: those of the machine if it has
# them, otherwise Debian's (Redis 7.0 and Valkey 8.0 on Debian 12).
#
# SERVERS="/path/to/redis-server ..." tests on those servers instead. If tests fail on one server, it continues with the
# next; the last line names the servers with failures. If a server is not available, it says so and continues, but
# with CI=true it fails, because a silently skipped server would be a gap.
set -eu
cd "$(dirname "$0")/.."

servers=${SERVERS:-}
if [ -n "$servers" ]; then
    sh scripts/need.sh build hosts
else
    sh scripts/need.sh build cli hosts
    for name in redis valkey; do
        if server=$(sh scripts/server.sh "$name"); then
            servers="$servers $server"
        elif [ "${CI:-}" = true ]; then
            echo "dsync: CI must test on $name, which is not available (see above)." >&2
            exit 1
        else
            echo "dsync: going on WITHOUT $name." >&2
        fi
    done
fi
if [ -z "$servers" ]; then
    echo "dsync: no server to test on. Install redis-server, or name one: make test SERVERS=/path/to/redis-server" >&2
    exit 1
fi

# Prints "Redis 7.0.15" for a server that says "Redis server v=7.0.15 sha=...".
version() {
    "$1" --version | sed 's/ server v=/ /' | cut -d ' ' -f 1,2
}

# shellcheck source=scripts/test-settings.sh
. scripts/test-settings.sh

echo "dsync: these servers will be tested:"
for server in $servers; do
    "$server" --version >/dev/null
    echo "    $(version "$server") ($server)"
done

sh scripts/test-install.sh
cargo build --release
sh scripts/test-run.sh
cargo test --workspace --lib --bins --test model --test readme --test arrows --test commit

failed=''
for server in $servers; do
    echo
    echo "dsync: the module on $(version "$server")"
    DSYNC_TEST_SERVER=$server cargo test --test server || failed="$failed, $(version "$server")"
done
if [ -n "$failed" ]; then
    echo "dsync: FAILED on ${failed#, }" >&2
    exit 1
fi
