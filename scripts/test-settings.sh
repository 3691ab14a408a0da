#!/bin/sh
# test-settings.sh: read (with `.`) by the scripts that test: how the tests have to run on this machine.
#
# Some stories cut a host off from the others, in network namespaces. Where none can be made (a container
# without the right to, an ordinary user where user namespaces are forbidden) they are left out, and this says
# so; unless CI=true, where they fail instead: a story that silently went untold would be a hole.

can_make_hosts() {
    command -v ip >/dev/null 2>&1 &&
        { unshare --net true || unshare --user --map-root-user --net true; } >/dev/null 2>&1
}

if [ "${CI:-}" != true ] && [ -z "${DSYNC_TEST_NO_NAMESPACES:-}" ] && ! can_make_hosts; then
    echo "dsync: going on WITHOUT the stories about hosts that are cut off: no network namespaces can be made here." >&2
    echo "dsync: to have them told, run as root, or allow user namespaces and install iproute2." >&2
    export DSYNC_TEST_NO_NAMESPACES=1
fi
