#!/bin/sh
# python_snippet.sh [FILE ...]: runs the Python lines of docs/client-rules.md, and the switch that docs/sentinel.md
# recommends, against real servers. The files are python_*.py, each of which says what it tests.
#
# DSYNC_TEST_SERVER is the server's program, DSYNC_TEST_MODULE the module; both have the defaults of a developer's
# machine. Installs redis-py, in the version that the page names, under target/clients/python_snippet.
set -eu
cd "$(dirname "$0")/../.."

python3 -c 'import venv, ensurepip' 2>/dev/null || sh scripts/need.sh peers
version=8.1.0
home=$PWD/target/clients/python_snippet
export DSYNC_TEST_SERVER="${DSYNC_TEST_SERVER:-$(sh scripts/server.sh redis)}"
export DSYNC_TEST_MODULE="${DSYNC_TEST_MODULE:-$PWD/target/release/libdsync.so}"

if ! "$home/bin/python" -c "import redis; assert redis.__version__ == '$version'" 2>/dev/null; then
    rm -rf "$home"
    python3 -m venv "$home"
    "$home/bin/pip" install -q --disable-pip-version-check "redis==$version"
fi
[ $# -gt 0 ] || set -- python_sentinel.py python_snippet.py
for file in "$@"; do
    "$home/bin/python" "tests/clients/$file"
done
