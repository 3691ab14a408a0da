#!/bin/sh
# build.sh FOLDER: builds the package in FOLDER, with what it needs from npm in pinned versions. The sources are left as they
# are, so any number of builds can go on at once.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cd "$1"
if ! cmp -s "$here/package-lock.json" package-lock.json || [ ! -d node_modules ]; then
    cp "$here/package.json" "$here/package-lock.json" .
    npm ci --include=dev --ignore-scripts --no-audit --no-fund --silent
fi
rm -rf src dist
cp -R "$here/package.json" "$here/tsconfig.json" "$here/src" .
node_modules/.bin/tsc
