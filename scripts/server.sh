#!/bin/sh
# server.sh redis|valkey: prints the path of a server that runs on this machine. If that is impossible, fails and says
# why. A server that this script unpacked has a redis-cli or valkey-cli beside it.
#
# It uses a server on PATH if there is one. Otherwise it unpacks Debian's packages under target/servers, with the
# libraries that the machine lacks. That needs no root rights, installs no package, starts no service and changes no
# configuration, and `make clean` removes everything. (To install the package redis-server was rejected: it starts a
# service on port 6379, and only a policy file for all packages prevents that.)
#
# Debian 12 has Redis 7.0 in its main archive and Valkey 8.0 in its backports. For the backports this script gives its
# own apt a list of sources with the address that the machine's sources have for the main archive.
set -eu

name=${1:-}
case $name in
redis | valkey) ;;
*)
    echo "usage: server.sh redis|valkey" >&2
    exit 2
    ;;
esac

if command -v "$name-server" 2>/dev/null; then
    exit 0
fi

scripts=$(cd "$(dirname "$0")" && pwd)
servers=$(dirname "$scripts")/target/servers
home=$servers/$name
server=$home/$name-server
if "$server" --version >/dev/null 2>&1; then
    echo "$server"
    exit 0
fi

fail() {
    echo "dsync: no $name-server here: $1" >&2
    exit 1
}

if ! command -v apt-get >/dev/null 2>&1 || ! command -v dpkg >/dev/null 2>&1; then
    fail "it is not on PATH, and without apt this cannot fetch it. Please install it."
fi
echo "dsync: unpacking Debian's $name-server under target/servers (nothing is installed) ..." >&2

# Unpack in a directory aside, and move it into place when it is complete, so that an interrupted run leaves nothing
# half-done.
work=$servers/$name.work
rm -rf "$work" "$home"
mkdir -p "$work/apt"
apt_home=$work/apt
# shellcheck source=scripts/apt.sh
. "$scripts/apt.sh"

update machine
packages="$name-server $name-tools"
# shellcheck disable=SC2086 # one word a package
if apt_with machine apt-cache show $packages >/dev/null 2>&1; then
    unpack machine $packages || fail "apt knows it but could not download it.
$(update_errors)"
elif [ "$name" = valkey ] && [ "$(debian_release)" = bookworm ] && write_sources backports deb bookworm-backports; then
    update backports
    unpack backports $packages || fail "the backports of Debian 12 could not be read:
$(cat "$apt_home/update.log")"
else
    fail "apt knows no such package here. (Redis is in Debian 12 and later; Valkey in the backports of Debian 12, and in later releases.)
$(update_errors)"
fi

binary=$work/root/usr/bin/$name-server

if [ -n "$(missing_libraries "$binary")" ]; then
    set_of_tools=machine
    [ ! -d "$apt_home/backports" ] || set_of_tools=backports
    packages=$(uninstalled_library_packages "$set_of_tools" "$name-tools")
    # shellcheck disable=SC2086 # one word a package
    unpack machine $packages || fail "its libraries could not be downloaded: $packages"
    [ -z "$(missing_libraries "$binary")" ] || fail "it lacks libraries: $(missing_libraries "$binary")"
fi

# wrap PROGRAM: writes a script that sets LD_LIBRARY_PATH and replaces itself by the program, so that the process id and
# signals are those of the program.
wrap() {
    {
        echo '#!/bin/sh'
        [ -z "$libraries" ] || echo "export LD_LIBRARY_PATH='$libraries'"
        echo "exec '$home/root/usr/bin/$1' \"\$@\""
    } >"$work/$1"
    chmod 755 "$work/$1"
}
libraries=$(library_path | sed "s|$work|$home|g")
wrap "$name-server"
wrap "$name-cli"
rm -rf "$work/apt" "$work/debs"
mv "$work" "$home"
"$server" --version >/dev/null || fail "it was unpacked and does not run."
echo "$server"
