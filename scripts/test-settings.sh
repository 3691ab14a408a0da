#!/bin/sh
# test-settings.sh: sets how the tests run on this machine. The scripts that test read this file with `.`.
#
# Some tests cut a host off from the others, with network namespaces. If none can be made (in a container without the
# right, or for a user where user namespaces are forbidden) these tests are skipped, and this script says so. With
# CI=true they are not skipped, and so fail, because a silently skipped test would be a gap.

can_make_hosts() {
    command -v ip >/dev/null 2>&1 &&
        { unshare --net true || unshare --user --map-root-user --net true; } >/dev/null 2>&1
}

if [ "${CI:-}" != true ] && [ -z "${DSYNC_TEST_NO_NAMESPACES:-}" ] && ! can_make_hosts; then
    echo "dsync: going on WITHOUT the tests with hosts that are cut off: this machine cannot make network namespaces." >&2
    echo "dsync: to run them too, run as root, or allow user namespaces and install iproute2." >&2
    export DSYNC_TEST_NO_NAMESPACES=1
fi

# Most tests wait most of the time, so several share a core.
export RUST_TEST_THREADS="${RUST_TEST_THREADS:-$(($(nproc) * 5))}"
