#!/bin/sh
# test.sh: plays what every helper must do (rows*.py) with a driver in each language, against
# $DSYNC_TEST_SERVER with the module $DSYNC_TEST_MODULE, and prints how many rows each driver passed. Arguments go to run.py:
# `test.sh -d 'rust tasks' -r sentinel`. Without any, what docs/sentinel-clients.md shows is typed before (typed.py), and a
# small fleet leads by turns (leaders.py).
set -eu
cd "$(dirname "$0")"
: "${DSYNC_TEST_SERVER:?is the path of redis-server or valkey-server}"
: "${DSYNC_TEST_MODULE:?is the path of libdsync.so}"

# shellcheck source=clients/conformance/prepare.sh
. ./prepare.sh
"$DSYNC_PYTHON" -m ruff check --no-cache --config ../python/pyproject.toml .
"$DSYNC_PYTHON" -m ruff format --no-cache --check --config ../python/pyproject.toml .
! wants rust || cargo fmt --check --manifest-path drivers/rust/Cargo.toml
if [ $# -eq 0 ]; then
    "$DSYNC_PYTHON" typed.py
    "$DSYNC_PYTHON" leaders.py 24 15
fi
"$DSYNC_PYTHON" run.py "$@"
