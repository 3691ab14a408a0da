#!/bin/sh
# test-install.sh: tests that `make install` chooses a folder from which the server may load the module, that it obeys
# the user's choice, and that it prints the line for the chosen folder. Installs only under temporary directories.
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
built=$work/target
mkdir -p "$built/release"
echo 'the module' >"$built/release/libdsync.so"

# expect CASE FOLDER ARGUMENT ...: checks that `make install` with these arguments installs to FOLDER and prints the
# right lines. Each case has an empty root; if CASE is the path of a unit file, that file is created there first.
expect() {
    root=$work/root
    rm -rf "$root"
    case $1 in
    /*)
        mkdir -p "$root$(dirname "$1")"
        : >"$root$1"
        ;;
    esac
    what="make install with $1"
    folder=$2
    shift 2
    # Ignore what the caller of this script has set.
    said=$(env -u MAKEFLAGS -u MAKELEVEL -u PREFIX -u MODULE_DIR make -s install "CARGO_TARGET_DIR=$built" "DESTDIR=$root" "$@")
    if ! cmp -s "$built/release/libdsync.so" "$root$folder/dsync.so"; then
        echo "$what $*: no module in $folder, but:" >&2
        find "$root" -name dsync.so >&2
        exit 1
    fi
    if ! echo "$said" | grep -qx "    loadmodule $folder/dsync.so"; then
        echo "$what $*: the line for $folder is not in:" >&2
        echo "$said" >&2
        exit 1
    fi
    needs_exec_path=yes
    case $folder in /usr/lib/*) needs_exec_path=no ;; esac
    tells_exec_path=no
    if echo "$said" | grep -qx "    ExecPaths=$folder"; then tells_exec_path=yes; fi
    if [ "$needs_exec_path" != "$tells_exec_path" ]; then
        echo "$what $*: ExecPaths= told: $tells_exec_path, needed: $needs_exec_path:" >&2
        echo "$said" >&2
        exit 1
    fi
}

for unit in /lib/systemd/system/redis-server.service /usr/lib/systemd/system/valkey-server.service; do
    expect "$unit" /usr/lib/redis/modules
    expect "$unit" /opt/dsync/lib/redis/modules PREFIX=/opt/dsync
    expect "$unit" /srv/modules MODULE_DIR=/srv/modules
    expect "$unit" /srv/modules MODULE_DIR=/srv/modules PREFIX=/opt/dsync
done
expect 'no service' /usr/local/lib/redis/modules
expect 'no service' /usr/lib/redis/modules PREFIX=/usr
expect /lib/systemd/system/postgresql.service /usr/local/lib/redis/modules

rm "$built/release/libdsync.so"
if make -s install "CARGO_TARGET_DIR=$built" "DESTDIR=$work/root" 2>"$work/said"; then
    echo 'make install without a built module does not fail' >&2
    exit 1
fi
grep -q 'make build' "$work/said"
echo 'dsync: make install chooses the right folder.'
