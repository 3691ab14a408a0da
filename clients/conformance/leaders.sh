#!/bin/sh
# leaders.sh PROCESSES SECONDS [-d KIND]: lets a fleet lead by turns under faults (leaders.py), on
# $DSYNC_TEST_SERVER with the module $DSYNC_TEST_MODULE: `leaders.sh 200 60`.
set -eu
cd "$(dirname "$0")"
: "${DSYNC_TEST_SERVER:?is the path of redis-server or valkey-server}"
: "${DSYNC_TEST_MODULE:?is the path of libdsync.so}"
# shellcheck source=clients/conformance/prepare.sh
. ./prepare.sh >&2
exec "$DSYNC_PYTHON" leaders.py "$@"
