#!/bin/sh
# bench-peers.sh: compares dsync with other lock algorithms and libraries; see benches/README.md.
#
# The real libraries are installed under target/peers, in the versions that benches/peers/ names; `make clean` removes
# them. The peers of a language that cannot be installed are left out, and the report says so. All else is bench.sh's.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need.sh peers
home=$PWD/target/peers
sources=$PWD/benches/peers

# is_current FILE: whether target/peers has what this file names.
is_current() {
    cmp -s "$sources/$1" "$home/installed-$1"
}

install_python() {
    rm -rf "$home/python"
    python3 -m venv "$home/python" &&
        "$home/python/bin/pip" install -q --disable-pip-version-check -r "$sources/requirements.txt" &&
        cp "$sources/requirements.txt" "$home/installed-requirements.txt"
}

install_node() {
    mkdir -p "$home/node" && cp "$sources/package.json" "$sources/package-lock.json" "$home/node/" &&
        (cd "$home/node" && npm ci --silent --no-audit --no-fund --ignore-scripts) &&
        cp "$sources/package-lock.json" "$home/installed-package-lock.json"
}

mkdir -p "$home"
if is_current requirements.txt || install_python >&2; then
    export PYTHON="$home/python/bin/python"
else
    echo "dsync: going on WITHOUT the libraries in Python." >&2
fi
if is_current package-lock.json || install_node >&2; then
    NODE=$(command -v node)
    export NODE NODE_PATH="$home/node/node_modules"
else
    echo "dsync: going on WITHOUT the libraries in JavaScript." >&2
fi
exec sh scripts/bench.sh peers
