#!/bin/sh
# test.sh: shows that client libraries can share one connection among many waiting tasks, and runs the Python lines of
# docs/client-rules.md.
#
# Starts $DSYNC_TEST_SERVER with $DSYNC_TEST_MODULE on a free port of 127.0.0.1; the server ends with this script.
# Installs the libraries under target/clients, in pinned versions. Needs Node and cargo.
set -eu
cd "$(dirname "$0")/../.."

server=$DSYNC_TEST_SERVER
home=$PWD/target/clients/shared

mkdir -p "$home/node" "$home/data"
if ! cmp -s tests/clients/package-lock.json "$home/node/package-lock.json" || [ ! -d "$home/node/node_modules" ]; then
    cp tests/clients/package.json tests/clients/package-lock.json "$home/node/"
    (cd "$home/node" && npm ci --silent --no-audit --no-fund --ignore-scripts)
fi

# The server refuses a port that is in use; then try the next one.
port=21000
while :; do
    "$server" --port "$port" --bind 127.0.0.1 --dir "$home/data" --save '' --logfile "$home/data/log" \
        --loadmodule "$DSYNC_TEST_MODULE" &
    pid=$!
    tries=0
    until grep -q 'Ready to accept connections' "$home/data/log" 2>/dev/null || ! kill -0 "$pid" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || break
        sleep 0.1
    done
    ! kill -0 "$pid" 2>/dev/null || break
    port=$((port + 1))
    [ "$port" -lt 21050 ] || {
        echo "dsync: no free port from 21000 to 21049." >&2
        exit 1
    }
done
trap 'kill "$pid" 2>/dev/null || true; rm -f "$home/data/log"' EXIT

export DSYNC_URL="redis://127.0.0.1:$port"
NODE_PATH="$home/node/node_modules" node tests/clients/shared_connection.js
CARGO_TARGET_DIR="$PWD/target" cargo run -q --release --manifest-path tests/clients/Cargo.toml
sh tests/clients/python_snippet.sh
