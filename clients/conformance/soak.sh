#!/bin/sh
# soak.sh SECONDS SEED [-d DRIVER] [-m MODE]: lets a fleet of helpers work under faults (soak.py), on $DSYNC_TEST_SERVER with
# the module $DSYNC_TEST_MODULE.
set -eu
cd "$(dirname "$0")"
: "${DSYNC_TEST_SERVER:?is the path of redis-server or valkey-server}"
: "${DSYNC_TEST_MODULE:?is the path of libdsync.so}"
# shellcheck source=clients/conformance/prepare.sh
. ./prepare.sh >&2
exec "$DSYNC_PYTHON" soak.py "$@"
