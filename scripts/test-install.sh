#!/bin/sh
# test-install.sh: tests that `make install` chooses a folder from which the server may load the module, that it obeys
# the user's choice, that it prints the line for the chosen folder, that servers may use the file whatever the umask, and
# that a newer version does not change the file that a running server has mapped. Installs only under temporary directories.
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

# A server refuses a module without the right to execute it, and runs as another user than the one who installs.
(umask 077 && expect 'umask 077' /usr/local/lib/redis/modules)
mode=$(stat -c %a "$work/root/usr/local/lib/redis/modules/dsync.so")
if [ "$mode" != 755 ]; then
    echo "make install with umask 077 gives the module the mode $mode" >&2
    exit 1
fi

# A server that runs has mapped the file: a newer version must be another file, or the server would crash.
ln "$work/root/usr/local/lib/redis/modules/dsync.so" "$work/mapped"
cp "$work/mapped" "$work/as-mapped"
echo 'a newer module' >"$built/release/libdsync.so"
env -u MAKEFLAGS -u MAKELEVEL -u PREFIX -u MODULE_DIR \
    make -s install "CARGO_TARGET_DIR=$built" "DESTDIR=$work/root" >"$work/said"
if ! cmp "$work/mapped" "$work/as-mapped"; then
    echo 'make install writes into the file that a running server has mapped' >&2
    exit 1
fi
if ! cmp "$built/release/libdsync.so" "$work/root/usr/local/lib/redis/modules/dsync.so"; then
    echo 'make install does not replace an older module' >&2
    exit 1
fi

rm "$built/release/libdsync.so"
if make -s install "CARGO_TARGET_DIR=$built" "DESTDIR=$work/root" 2>"$work/said"; then
    echo 'make install without a built module does not fail' >&2
    exit 1
fi
grep -q 'make build' "$work/said"
echo 'dsync: make install chooses the right folder.'
