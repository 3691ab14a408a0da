#!/bin/sh
# server-suites.sh: runs the servers' own tests, from Debian's source packages, with the module loaded into every server
# that they start: SERVERS="redis-7.0 valkey-9.1+" (these two unless set), UNITS="unit/type/ ..." some of their tests.
# tests/suites/run.py says the rest. It takes an hour or more for a server.
set -eu
cd "$(dirname "$0")/.."

sh scripts/need.sh build make tcl
apt_home=$PWD/target/servers/sources
# shellcheck source=scripts/apt.sh
. scripts/apt.sh
# shellcheck source=scripts/source.sh
. scripts/source.sh

fail() {
    echo "dsync: no ${wanted%+} here: $1" >&2
    exit 1
}

cargo build --release
failed=''
for wanted in ${SERVERS:-redis-7.0 valkey-9.1+}; do
    find_source "${wanted%%-*}" "${wanted#*-}"
    home=$PWD/target/suites/$product-$full
    if [ ! -x "$home/source/src/$product-server" ]; then
        echo "dsync: building $product $full and its test modules under target/suites (this takes minutes) ..." >&2
        rm -rf "$home"
        mkdir -p "$home"
        fetch_source "$home"
        make_server "$home" all
        make -C "$home/source/tests/modules" >>"$home/log" 2>&1 || fail "its test modules do not build (see $home/log)."
    fi
    # shellcheck disable=SC2086 # a word each
    python3 tests/suites/run.py "$product" "$home" target/release/libdsync.so ${UNITS:-} || failed="$failed $product-$full"
done
if [ -n "$failed" ]; then
    echo "dsync: tests fail that pass without the module, on$failed" >&2
    exit 1
fi
