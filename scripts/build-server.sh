#!/bin/sh
# build-server.sh redis|valkey MAJOR.MINOR[+]: prints the path of a server of that version, built on this machine from
# Debian's source packages (source.sh), with a redis-cli or valkey-cli beside it. If that is impossible, fails and says
# why. With a +, a later version is accepted once Debian's archive no longer has this one.
#
# The servers are built, because the packages of one release of Debian do not run on another. The result is kept under
# target/servers, by its full version; `make clean` removes it together with the source lists.
set -eu

usage() {
    echo "usage: build-server.sh redis|valkey MAJOR.MINOR[+]" >&2
    exit 2
}

product=${1:-}
version=${2:-}
case $product in redis | valkey) ;; *) usage ;; esac
case $version in [0-9]*.[0-9]*) ;; *) usage ;; esac

scripts=$(cd "$(dirname "$0")" && pwd)
servers=$(dirname "$scripts")/target/servers
apt_home=$servers/sources
# shellcheck source=scripts/apt.sh
. "$scripts/apt.sh"
# shellcheck source=scripts/source.sh
. "$scripts/source.sh"

fail() {
    echo "dsync: no $product ${version%+} here: $1" >&2
    exit 1
}

# built VERSION: prints the path of the server of that version, if it is built already; otherwise fails.
built() {
    for server in "$servers/$product-$1".*/"$product-server"; do
        if "$server" --version >/dev/null 2>&1; then
            echo "$server"
            return
        fi
    done
    return 1
}

if built "${version%+}"; then
    exit 0
fi
find_source "$product" "$version"
home=$servers/$product-$full
if built "${full%.*}"; then
    exit 0
fi

sh "$scripts/need.sh" make >&2 || fail "the tools to build it are missing."
echo "dsync: building $product $full under target/servers, from Debian's source (this takes minutes) ..." >&2

# Build in a directory aside, and move the server into place when it works, so that an interrupted run leaves nothing
# half-done.
work=$home.work
rm -rf "$work" "$home"
mkdir -p "$work/home"
fetch_source "$work"
make_server "$work" "$product-server" "$product-cli"
for program in "$product-server" "$product-cli"; do
    cp "$work/source/src/$program" "$work/home/"
done
"$work/home/$product-server" --version >/dev/null || fail "it was built and does not run."
mv "$work/home" "$home"
rm -rf "$work"
echo "$home/$product-server"
