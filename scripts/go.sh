#!/bin/sh
# go.sh: prints the path of a Go compiler, 1.21 or newer, and makes target/go/go.work, a workspace of the Go modules of this
# repository with the libraries that their tests need. If that is impossible, fails and says why.
#
# Uses the compiler on PATH if it is new enough. Otherwise unpacks Debian's under target/go. The libraries are those that
# Debian has as packages of sources, so that nothing is asked of a module proxy. That needs no root rights, installs no
# package and changes no configuration, and `make clean` removes everything.
#
# Debian 13 has the compiler; Debian's unstable release has the libraries. They are sources, so they fit any release.
set -eu

scripts=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$scripts")
home=$root/target/go

# Prints the compiler, if there is one that is new enough.
compiler() {
    for found in "$(command -v go || true)" "$home/root/usr/lib/go-1.24/bin/go"; do
        version=$([ -x "$found" ] && GOTOOLCHAIN=local "$found" env GOVERSION 2>/dev/null) || continue
        minor=$(echo "$version" | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
        if [ "${minor:-0}" -ge 21 ]; then
            echo "$found"
            return
        fi
    done
    return 1
}

if compiler >/dev/null && grep -qs benches/clients/go "$home/go.work"; then
    compiler
    exit
fi

fail() {
    echo "dsync: no Go for the tests here: $1" >&2
    exit 1
}

if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg >/dev/null 2>&1; then
    fail "without apt this cannot fetch the libraries."
fi
echo "dsync: unpacking Debian's Go and its libraries for Redis under target/go (nothing is installed) ..." >&2

# Unpack in a directory aside, and move it into place when it is complete, so that an interrupted run leaves nothing
# half-done.
work=$root/target/go.work-dir
rm -rf "$work" "$home"
mkdir -p "$work/apt"
apt_home=$work/apt
# shellcheck source=scripts/apt.sh
. "$scripts/apt.sh"

libraries="golang-github-redis-go-redis-dev golang-github-gomodule-redigo-dev
    golang-github-cespare-xxhash-v2-dev golang-github-dgryski-go-rendezvous-dev"
tools=''
compiler >/dev/null || tools='golang-1.24-go golang-1.24-src go-staticcheck'
update machine
write_sources go deb trixie sid || fail "this is not Debian, or apt has no source of its main archive."
update go
# shellcheck disable=SC2086 # one word a package
unpack go $libraries $tools || fail "Debian's packages could not be downloaded:
$(update_errors)"
rm -rf "$work/debs" "$apt_home"

# module PATH FOLDER [REQUIREMENT ...]: makes a folder of Debian's sources the module of this path in the workspace.
# Without the requirements of its tests, which the workspace has no need of and could not find.
module() {
    folder=root/usr/share/gocode/src/github.com/$2
    printf 'replace %s => ./%s\n' "$1" "$folder" >>"$work/go.work"
    printf 'module %s\n\ngo 1.18\n' "$1" >"$work/$folder/go.mod"
    shift 2
    for requirement in "$@"; do
        printf '\nrequire %s\n' "$requirement" >>"$work/$folder/go.mod"
    done
}
# Those of the libraries' own go.mod.
xxhash='github.com/cespare/xxhash/v2 v2.3.0'
rendezvous='github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f'
printf 'go 1.21\n\nuse ../../clients/go\nuse ../../clients/conformance/drivers/go\nuse ../../benches/clients/go\n\n' >"$work/go.work"
module "${xxhash% *}" cespare/xxhash/v2
module "${rendezvous% *}" dgryski/go-rendezvous
module github.com/redis/go-redis/v9 redis/go-redis "$xxhash" "$rendezvous"
module github.com/gomodule/redigo gomodule/redigo

mv "$work" "$home"
compiler || fail "it was unpacked and does not run."
