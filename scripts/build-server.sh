#!/bin/sh
# build-server.sh redis|valkey MAJOR.MINOR[+]: prints the path of a server of that version, built on this machine from
# Debian's source packages, with a redis-cli or valkey-cli beside it. If that is impossible, fails and says why. With a
# +, a later version is accepted once Debian's archive no longer has this one.
#
# The servers are built, because the packages of one release of Debian do not run on another. apt fetches the sources
# with lists of its own (apt.sh), without root rights, and checks them against the archive's signature. They are built
# as upstream released them, without Debian's patches, and with the bundled libraries, so that the program needs only
# the C library. The result is kept under target/servers, by its full version; `make clean` removes it together with
# the source lists.
set -eu

# The releases of Debian in which the servers are searched for, from the newest on.
releases='sid trixie bookworm-backports bookworm bullseye'

usage() {
    echo "usage: build-server.sh redis|valkey MAJOR.MINOR[+]" >&2
    exit 2
}

product=${1:-}
version=${2:-}
or_later=''
case $version in
*+)
    or_later=yes
    version=${version%+}
    ;;
esac
case $product in redis | valkey) ;; *) usage ;; esac
case $version in [0-9]*.[0-9]*) ;; *) usage ;; esac

scripts=$(cd "$(dirname "$0")" && pwd)
servers=$(dirname "$scripts")/target/servers
apt_home=$servers/sources
# shellcheck source=scripts/apt.sh
. "$scripts/apt.sh"

fail() {
    echo "dsync: no $product $version here: $1" >&2
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

if built "$version"; then
    exit 0
fi
command -v apt-get >/dev/null 2>&1 || fail "without apt its source cannot be fetched."
mkdir -p "$apt_home"
: >"$apt_home/update.log"
update machine
# shellcheck disable=SC2086 # one word a release
write_sources debian deb-src $releases ||
    fail "its source is fetched from Debian's archive, and apt knows no address of that here."
update debian

# The versions of the source package as Debian writes them, such as 5:8.0.6-3; the newest is last.
offered=$(apt_with debian apt-cache showsrc --only-source "$product" 2>/dev/null |
    sed -n 's/^Version: //p' | sort -u -V)
# Reduces such versions to upstream's: 8.0.6.
upstream() {
    sed 's/^[0-9]*://; s/-[^-]*$//; s/[+~].*//'
}
newest() {
    tail -n 1
}
[ -n "$offered" ] || fail "Debian's sources could not be read: $(update_errors | newest)"

source_version=$(echo "$offered" | grep "^\([0-9]*:\)\{0,1\}$version\." | newest) || true
if [ -z "$source_version" ] && [ -n "$or_later" ]; then
    last=$(echo "$offered" | newest)
    if [ "$(printf '%s\n%s\n' "$version" "$(echo "$last" | upstream)" | sort -V | newest)" != "$version" ]; then
        source_version=$last
    fi
fi
[ -n "$source_version" ] ||
    fail "of its source Debian has only $(echo "$offered" | upstream | sort -u -V | paste -s -d , - | sed 's/,/, /g')."

full=$(echo "$source_version" | upstream)
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
mkdir -p "$work/source" "$work/home"
(cd "$work" && apt_with debian apt-get -q source --download-only --only-source "$product=$source_version") >"$work/log" 2>&1 ||
    fail "its source could not be downloaded: $(tail -n 1 "$work/log")"
tar -x -f "$work/$product"_*.orig.tar.* -C "$work/source" --strip-components=1

# Pass on nothing of a make that called this script, or the server's make would get its flags and variables. And git
# must not find dsync's repository, or the server's build would take dsync's commit for its own.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL
export GIT_CEILING_DIRECTORIES="$work/source"
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
make -C "$work/source/src" -j "$jobs" BUILD_TLS=no USE_SYSTEMD=no OPTIMIZATION=-O2 \
    "$product-server" "$product-cli" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" >&2
    fail "it does not build (see above)."
}
for program in "$product-server" "$product-cli"; do
    cp "$work/source/src/$program" "$work/home/"
done
"$work/home/$product-server" --version >/dev/null || fail "it was built and does not run."
mv "$work/home" "$home"
rm -rf "$work"
echo "$home/$product-server"
