#!/bin/sh
# build-server.sh redis|valkey MAJOR.MINOR[+]: prints the path of a server of that version, built here from
# Debian's source packages, with a redis-cli or valkey-cli beside it; fails, saying why, where it cannot be
# had. With a +, a later version does where Debian has none of that one any more: the archive moves on.
#
# No release of Debian runs the servers of another, so they are built. The sources are fetched with apt,
# which checks them against the archive's signature, and with lists of its own (apt.sh); no rights are
# needed for that. They are built as their makers released them, without Debian's patches, and with the
# bundled libraries, so that the program needs nothing but the C library. It is kept under target/servers,
# by its full version; `make clean` removes it, and with it the sources' lists.
set -eu

# In which Debian's servers are looked for, with the archive's main address: from the newest release on.
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

# built VERSION: prints the path of the server of that version, where one is built.
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

# The versions of the source package, the newest last, as Debian writes them: 5:8.0.6-3.
offered=$(apt_with debian apt-cache showsrc --only-source "$product" 2>/dev/null |
    sed -n 's/^Version: //p' | sort -u -V)
# 8.0.6, of that.
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

sh "$scripts/need.sh" make >&2 || fail "what it is built with is missing."
echo "dsync: building $product $full under target/servers, from Debian's source (this takes minutes) ..." >&2

# Made aside and moved into place when it runs, so that an interrupted run leaves nothing half-done.
work=$home.work
rm -rf "$work" "$home"
mkdir -p "$work/source" "$work/home"
(cd "$work" && apt_with debian apt-get -q source --download-only --only-source "$product=$source_version") >"$work/log" 2>&1 ||
    fail "its source could not be downloaded: $(tail -n 1 "$work/log")"
tar -x -f "$work/$product"_*.orig.tar.* -C "$work/source" --strip-components=1

# Nothing of the make that may have called this one, which would be told to make that one's targets with
# its variables. And git must not take the version of dsync for the server's.
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
