#!/bin/sh
# test.sh: plays what every helper must do (rows*.py) with a driver in each language, against
# $DSYNC_TEST_SERVER with the module $DSYNC_TEST_MODULE, and prints how many rows each driver passed. Arguments go to run.py:
# `test.sh -d 'rust tasks' -r sentinel`. Installs what the drivers need under target/clients/conformance of the repository.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
clients=$(dirname "$here")
home=$(cd "$clients/.." && pwd)/target/clients/conformance
: "${DSYNC_TEST_SERVER:?is the path of redis-server or valkey-server}"
: "${DSYNC_TEST_MODULE:?is the path of libdsync.so}"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
mkdir -p "$home"

requirements=$clients/python/tests/requirements.txt
if ! cmp -s "$requirements" "$home/python/requirements.txt"; then
    rm -rf "$home/python"
    "${PYTHON:-python3}" -m venv "$home/python"
    "$home/python/bin/pip" install --quiet --requirement "$requirements"
    cp "$requirements" "$home/python/requirements.txt"
fi

if ! cmp -s "$here/drivers/package-lock.json" "$home/node/package-lock.json"; then
    rm -rf "$home/node"
    mkdir -p "$home/node"
    cp "$here/drivers/package.json" "$here/drivers/package-lock.json" "$home/node/"
    (cd "$home/node" && npm ci --silent --no-audit --no-fund --ignore-scripts)
fi
rm -rf "$home/node/node_modules/dsync-client"
mkdir -p "$home/node/node_modules/dsync-client"
cp -R "$clients/node/package.json" "$clients/node/src" "$home/node/node_modules/dsync-client/"
cp "$here/drivers/node.js" "$home/node/"

cd "$here"
"$home/python/bin/ruff" check --no-cache --config ../python/pyproject.toml .
"$home/python/bin/ruff" format --no-cache --check --config ../python/pyproject.toml .
cargo fmt --check --manifest-path drivers/rust/Cargo.toml
CARGO_TARGET_DIR=$home/rust cargo build --quiet --locked --manifest-path drivers/rust/Cargo.toml

export PYTHONPATH="$clients/python/src" DSYNC_PYTHON="$home/python/bin/python"
export DSYNC_NODE_DRIVER="$home/node/node.js" DSYNC_RUST_DRIVER="$home/rust/debug/dsync-conformance-driver"
"$DSYNC_PYTHON" run.py "$@"
